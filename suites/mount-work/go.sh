# Go, its sources, cache and modules on the mount: its own commands are built statically, run from there, and build another program. Then
# tests of its library that work with files, also static.
prepare() {
  need go golang-go
  export GO=$(go env GOROOT)
}
work() {
  cp -a "$(readlink -f "$GO")" goroot
  export GOROOT=$D/goroot GOCACHE=$D/cache GOPATH=$D/gopath GOTMPDIR=$D/tmp GOFLAGS=-buildvcs=false GOTOOLCHAIN=local CGO_ENABLED=0 HOME=$D
  export PATH=$GOROOT/bin:$PATH
  go version
  mkdir bin
  go build -trimpath -o bin cmd/go cmd/gofmt cmd/compile cmd/link cmd/vet cmd/asm >&2
  (cd bin && file -b --mime-type * 2>/dev/null | sort | uniq -c || true; md5sum -- *)
  fact "cache of $(find cache -type f | wc -l) files"
  # What was just built, a static program, from the mount.
  bin/gofmt -l "$GOROOT/src/os" "$GOROOT/src/net" | wc -l
  mkdir hello && cd hello
  cat >main.go <<'G'
package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"os"
)

func main() {
	files, sum := 0, sha256.New()
	fs.WalkDir(os.DirFS(os.Args[1]), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, err := os.ReadFile(os.Args[1] + "/" + path)
			if err != nil {
				panic(err)
			}
			files++
			sum.Write(data)
		}
		return err
	})
	fmt.Printf("%d files, %x, %s\n", files, sum.Sum(nil)[:8], http.StatusText(200))
}
G
  "$D/bin/go" mod init example.org/hello >&2
  "$D/bin/go" build -o hello . && ./hello "$GOROOT/src/crypto"
  CGO_ENABLED=1 "$D/bin/go" build -o with-cgo . && ./with-cgo "$GOROOT/src/crypto"
  # Names and outcome without the time.
  # The kernel lets programs wait for regular files of any FUSE mount by epoll, which the test that is left out does not expect.
  (cd "$GOROOT/src" && "$D/bin/go" test -skip '^TestNonpollableDeadline$' os io/fs path/filepath archive/tar archive/zip io/ioutil os/exec internal/poll 2>&1 || true) >tests
  cat tests >&2
  grep -E '^(ok|FAIL|---|\?)' tests | sed -E 's/[0-9.]+s\)?$//; s/\(cached\)//' || true
}
