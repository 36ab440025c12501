#!/usr/bin/env bash
# Puts the C library where programs find it: install-c.sh FOLDER PREFIX [DESTDIR]. FOLDER is where Cargo has built it.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: install-c.sh FOLDER PREFIX [DESTDIR]" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
from=$1 prefix=$2 to=${3:-}$2
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")
install -d "$to/lib/pkgconfig" "$to/include"
install -m 755 "$from/libweft_c.so" "$to/lib/"
install -m 644 "$from/libweft_c.a" "$to/lib/"
install -m 644 "$here/crates/capi/include/weft.h" "$to/include/"
cat > "$to/lib/pkgconfig/weft.pc" <<PC
prefix=\${pcfiledir}/../..
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: weft
Description: Flash at three levels, tag stores and programs of file operations for programs in C
Version: $version
Libs: -L\${libdir} -lweft_c
Cflags: -I\${includedir}
PC
