// Many goroutines that write, read, list, rename and remove files: argv[1] is the directory, argv[2] the number of
// goroutines, argv[3] the rounds of each. With the tag `plain` the program is linked dynamically by way of the resolver
// only; else it also calls into C.
package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"
)

func content(g, r int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("goroutine %d round %d\n", g, r)), 1+(g*37+r*101)%900)
}

func must(err error) {
	if err != nil {
		fmt.Println("fails:", err)
		os.Exit(1)
	}
}

func worker(dir string, g, rounds int) uint32 {
	sum := crc32.NewIEEE()
	own := filepath.Join(dir, strconv.Itoa(g))
	must(os.MkdirAll(own, 0o755))
	for r := 0; r < rounds; r++ {
		name, next := filepath.Join(own, "a"+strconv.Itoa(r)), filepath.Join(own, "b"+strconv.Itoa(r))
		want := content(g, r)
		must(os.WriteFile(name, want, 0o644))
		got, err := os.ReadFile(name)
		must(err)
		if !bytes.Equal(got, want) {
			must(fmt.Errorf("%s: other bytes", name))
		}
		must(os.Rename(name, next))
		f, err := os.OpenFile(next, os.O_RDWR|os.O_APPEND, 0)
		must(err)
		_, err = f.Write([]byte("more"))
		must(err)
		_, err = f.ReadAt(got[:4], int64(len(want)))
		must(err)
		must(f.Sync())
		must(f.Close())
		sum.Write(got)
		sum.Write([]byte(strconv.Itoa(inC(r))))
		if r%3 == 0 {
			must(os.Remove(next))
		}
		if r%5 == 0 {
			runtime.GC()
		}
	}
	entries, err := os.ReadDir(own)
	must(err)
	for _, entry := range entries {
		info, err := entry.Info()
		must(err)
		fmt.Fprintf(sum, "%s %d %v\n", entry.Name(), info.Size(), info.Mode())
	}
	return sum.Sum32()
}

func main() {
	goroutines, _ := strconv.Atoi(os.Args[2])
	rounds, _ := strconv.Atoi(os.Args[3])
	sums := make([]string, goroutines)
	var all sync.WaitGroup
	for g := range sums {
		all.Add(1)
		go func() {
			defer all.Done()
			sums[g] = fmt.Sprintf("%d %08x", g, worker(os.Args[1], g, rounds))
		}()
	}
	all.Wait()
	sort.Strings(sums)
	h := crc32.NewIEEE()
	for _, s := range sums {
		fmt.Fprintln(h, s)
	}
	fmt.Printf("%d goroutines, %d rounds: %08x\n", goroutines, rounds, h.Sum32())
}
