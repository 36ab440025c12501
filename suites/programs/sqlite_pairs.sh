# Transactions for suites/sqlite-atomic.sh, to be fed to sqlite3. Each moves an amount between two tables, so that both sum up to 0, and adds
# a row to each; the line behind it is printed when it has been committed.
#   sqlite_pairs.sh FIRST [COUNT]
i=$1 end=$((${2:-1000000} + $1))
echo "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;"
echo "CREATE TABLE IF NOT EXISTS a(i INTEGER PRIMARY KEY, n INTEGER, v TEXT); CREATE TABLE IF NOT EXISTS b(i INTEGER PRIMARY KEY, n INTEGER, v TEXT);"
while [ "$i" -lt "$end" ]; do
  echo "BEGIN; INSERT OR REPLACE INTO a VALUES($i, $i * 7, hex(randomblob($i % 2000))); INSERT OR REPLACE INTO b VALUES($i, -$i * 7, hex(randomblob($i % 900)));"
  echo "UPDATE a SET n = n + 1 WHERE i = $i / 2; UPDATE b SET n = n - 1 WHERE i = $i / 2; COMMIT; SELECT 'done $i';"
  i=$((i + 1))
done
