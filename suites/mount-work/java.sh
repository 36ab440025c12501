# H2 and Derby, databases in a Java program, with their files on the mount: filled, reopened, killed under load. ROWS: how many.
prepare() {
  need java default-jdk-headless
  need javac default-jdk-headless
  need /usr/share/java/h2.jar libh2-java
  need /usr/share/java/derby.jar libderby-java
  javac -d "$SCRATCH" suites/programs/JdbcRoundTrip.java || return 3
  export CLASSPATH=$SCRATCH:/usr/share/java/h2.jar:/usr/share/java/derby.jar:/usr/share/java/derbyshared.jar ROWS=${ROWS:-50000}
}
work() {
  java -version 2>&1 | head -1
  for kind in h2 derby; do
    case $kind in
      h2) url() { echo "jdbc:h2:$D/h2-$1;WRITE_DELAY=0"; } ;;
      derby) url() { echo "jdbc:derby:$D/derby-$1;create=true"; } ;;
    esac
    java JdbcRoundTrip "$(url all)" fill "$ROWS"
    java JdbcRoundTrip "$(url all)" check "$ROWS"
    for round in 1 2; do
      java JdbcRoundTrip "$(url killed$round)" acknowledge >acknowledged & program=$!
      for second in $(seq 60); do sleep 1; grep -q '^[0-9]' acknowledged && break; done
      sleep 3
      kill -9 $program; wait $program 2>/dev/null || true
      acknowledged=$(grep -cx '[0-9]*' acknowledged)
      there=$(java JdbcRoundTrip "$(url killed$round)" check 2>&1 | sed -n 's/^\([0-9]*\) rows.*/\1/p')
      fact "$kind: kill -9, $acknowledged acknowledged, $there there"
      [ "$there" -ge "$acknowledged" ] && [ "$there" -le $((acknowledged + 1)) ] && echo "$kind: nothing acknowledged is lost"
    done
  done
}
