#!/bin/sh
# Installs db_bench (Debian: rocksdb-tools) when it is missing.
set -eu
command -v db_bench >/dev/null && exit 0
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
if ! command -v apt-get >/dev/null; then
    echo "db_bench is missing and there is no apt-get; install RocksDB's tools and try again" >&2
    exit 1
fi
echo "installing rocksdb-tools for db_bench"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rocksdb-tools
