module weft/many
go 1.22
