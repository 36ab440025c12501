#!/usr/bin/env bash
# H2 and Derby, databases in Java, by JDBC: filled, updated, reopened, killed under load and recovered.
# programs-java.sh [ROWS]
source "$(dirname "$0")/programs/prepare.sh"
ROWS=${1:-20000}
need java default-jdk-headless
need mvn maven
JARS=$SCRATCH/jars
mkdir -p "$JARS"
for artifact in com.h2database:h2:2.2.224 org.apache.derby:derby:10.16.1.1 org.apache.derby:derbyshared:10.16.1.1; do
  IFS=: read -r group name number <<<"$artifact"
  timeout 300 mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="$artifact" \
    -DoutputDirectory="$JARS" >"$SCRATCH/mvn" 2>&1 || { echo "MISSING  $group:$name:$number"; tail -3 "$SCRATCH/mvn"; exit 3; }
done
version "H2 2.2.224, Derby 10.16.1.1, $(java -version 2>&1 | head -1)"
javac -d "$SCRATCH" suites/programs/JdbcRoundTrip.java
export CLASSPATH="$SCRATCH:$JARS/*"
new_volume 1G
# Both write their log where they are started.
java_on() { # PLACE URL STEP
  case $1 in
    native) (cd "$NATIVE" && timeout 280 java JdbcRoundTrip "$2" "$3" "$ROWS") ;;
    volume) weft_run sh -c 'cd /weft && exec timeout 280 java JdbcRoundTrip "$@"' sh "$2" "$3" "$ROWS" ;;
  esac
}
for kind in h2 derby; do
  case $kind in
    h2) url() { echo "jdbc:h2:$1/h2-$2;WRITE_DELAY=0"; } ;;
    derby) url() { echo "jdbc:derby:$1/derby-$2;create=true"; } ;;
  esac
  want=$(java_on native "$(url "$NATIVE" all)" fill 2>&1)
  same "$kind: filled" "$want" "$(java_on volume "$(url /weft all)" fill 2>&1)"
  same "$kind: reopened" "$want" "$(java_on volume "$(url /weft all)" check 2>&1)"
  for round in 1 2 3; do
    # A slow machine may need longer for the first row.
    weft_run sh -c 'cd /weft; java JdbcRoundTrip "$1" acknowledge >"$2" & sleep 4
      for second in $(seq 60); do grep -q "^[0-9]" "$2" && break; sleep 1; done; kill -9 $!; wait' \
      sh "$(url /weft killed$round)" "$SCRATCH/acknowledged" 2>/dev/null || true
    # What the database has to say of its own is no row.
    acknowledged=$(grep -cx '[0-9]*' "$SCRATCH/acknowledged" || true)
    # A database that was killed before it had its table has no rows to count.
    told=$(java_on volume "$(url /weft killed$round)" check 2>&1) || true
    there=$(sed -n 's/^\([0-9]*\) rows.*/\1/p' <<<"$told")
    # A fast machine would fill the volume.
    weft_run sh -c 'rm -rf /weft/*-killed*'
    if [ "${acknowledged:-0}" -gt 0 ] && [ "${there:-0}" -ge "$acknowledged" ] && [ "$there" -le $((acknowledged + 1)) ]; then
      pass "$kind: kill -9, nothing acknowledged is lost ($acknowledged acknowledged, $there there)"
    else
      fail "$kind: kill -9: ${acknowledged:-0} acknowledged, ${there:-none} there"
      # Of a stack trace, what happened and not where.
      [ -n "$there" ] || grep -v '^[[:space:]]' <<<"$told" | head -5 || true
    fi
  done
done
fsck_clean
summary
