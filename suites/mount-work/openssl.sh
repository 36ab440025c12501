# OpenSSL from Debian's source: unpacked, configured, built and tested. OPENSSL_SOURCE: the archive, which apt fetches otherwise;
# OPENSSL_TESTS: what of its tests runs.
prepare() {
  need gcc gcc libc6-dev
  need make make
  need perl perl
  need dpkg-source dpkg-dev
  : "${OPENSSL_SOURCE:=$(source_of openssl)}"
  [ -f "$OPENSSL_SOURCE" ] || return 3
  export OPENSSL_SOURCE OPENSSL_TESTS="${OPENSSL_TESTS:-[0267]? 80 -test_ssl_new -test_ssl_old}"
}
work() {
  tar xf "$OPENSSL_SOURCE"
  cd openssl-*/
  echo "$(basename "$PWD"), $(find . -type f | wc -l) files"
  # The date of the build, which is part of it, is the same for all.
  export SOURCE_DATE_EPOCH=1700000000
  ./Configure -O0 linux-x86_64 >&2
  make -j2 >&2
  find . -name '*.o' | wc -l
  md5sum libcrypto.so.3 libssl.so.3 apps/openssl
  # Tests that failed, or their number.
  make test HARNESS_JOBS=2 TESTS="$OPENSSL_TESTS" >test.log 2>&1 || true
  cat test.log >&2
  grep -E "^  Failed test|Wstat" test.log || true
  sed -n '/^Files=[0-9]*, Tests=[1-9]/s/^Files=\([0-9]*\), Tests=\([0-9]*\).*/\1 programs, \2 tests/p' test.log
  make -j2 >again 2>&1
  grep -c '^gcc' again || true
  make install_sw DESTDIR="$D/installed" >&2
  (cd "$D/installed" && find . -type f -perm -100 | sort)
  LD_LIBRARY_PATH=$(dirname "$(find "$D/installed" -name libcrypto.so.3)") "$(find "$D/installed" -path '*/bin/openssl')" version
  make clean >&2
  find . -name '*.o' | wc -l
}
