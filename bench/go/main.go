// Peer process of `bench profile`: google/pprof on the same raw profiles.
// It loads every file of a folder, then answers one command a line on stdin:
//
//	decode N | gunzip N   N passes over all files
//	encode N              N encodings of every file
//
// with the CPU seconds of the whole process (garbage collection included).
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/pprof/profile"
)

type file struct {
	name string
	raw  []byte
	gz   []byte
}

func main() {
	runtime.GOMAXPROCS(1)
	if len(os.Args) != 2 {
		fatal(fmt.Errorf("usage: gopeer FOLDER"))
	}
	files, err := load(os.Args[1])
	if err != nil {
		fatal(err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if len(words) == 1 && words[0] == "accepted" {
			fmt.Println(strings.Join(accepted(files), " "))
			continue
		}
		if len(words) == 2 && words[0] == "keep" {
			files = keep(files, strings.Split(words[1], ","))
			fmt.Println(len(files))
			continue
		}
		if len(words) != 2 {
			fatal(fmt.Errorf("unknown command %q", in.Text()))
		}
		n, err := strconv.Atoi(words[1])
		if err != nil {
			fatal(err)
		}
		seconds, err := run(words[0], n, files)
		if err != nil {
			fatal(err)
		}
		fmt.Printf("%.9f\n", seconds)
	}
}

func run(what string, n int, files []file) (float64, error) {
	switch what {
	case "decode":
		return timed(func() error {
			return each(n, files, func(f file) error { _, err := decode(f.raw); return err })
		})
	case "gunzip":
		return timed(func() error {
			return each(n, files, func(f file) error { _, err := profile.ParseData(f.gz); return err })
		})
	case "encode":
		return encode(n, files)
	}
	return 0, fmt.Errorf("unknown command %q", what)
}

// ParseUncompressed leaves the validity check to its caller.
func decode(raw []byte) (*profile.Profile, error) {
	p, err := profile.ParseUncompressed(raw)
	if err != nil {
		return nil, err
	}
	return p, p.CheckValid()
}

// encode keeps only one parsed profile alive at a time, to be fair to the collector.
func encode(n int, files []file) (float64, error) {
	total := 0.0
	for _, f := range files {
		p, err := decode(f.raw)
		if err != nil {
			return 0, err
		}
		runtime.GC()
		seconds, err := timed(func() error {
			for range n {
				if err := p.WriteUncompressed(io.Discard); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		total += seconds
	}
	return total, nil
}

func each(n int, files []file, do func(file) error) error {
	for range n {
		for _, f := range files {
			if err := do(f); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

func accepted(files []file) []string {
	names := []string{}
	for _, f := range files {
		if _, err := decode(f.raw); err == nil {
			names = append(names, f.name)
		}
	}
	return names
}

func keep(files []file, names []string) []file {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	kept := []file{}
	for _, f := range files {
		if wanted[f.name] {
			kept = append(kept, f)
		}
	}
	return kept
}

func load(folder string) ([]file, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.pb"))
	if err != nil {
		return nil, err
	}
	sort.Strings(paths)
	files := make([]file, 0, len(paths))
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		gz, err := compress(raw)
		if err != nil {
			return nil, err
		}
		files = append(files, file{filepath.Base(path), raw, gz})
	}
	return files, nil
}

func compress(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func timed(do func() error) (float64, error) {
	before, err := cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := cpu()
	return after - before, err
}

func cpu() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime), nil
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "gopeer:", err)
	os.Exit(1)
}
