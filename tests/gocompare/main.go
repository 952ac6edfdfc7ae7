// Command gocompare looks at profiles with google/pprof, the reference reader.
//
// It reads commands from standard input, one a line, words separated by tabs, and answers each
// with one line:
//
//	equal A B        "equal", "both err", or "differ: " and the first difference
//	verdict A        "OK", or "ERR" and the error; of its readers, only that of protobuf
//	merge OUT A B …  writes the merged profile of A, B, … to OUT; "ok", or "err" and the error
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/pprof/profile"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		fmt.Println(strings.ReplaceAll(answer(words[0], words[1:]), "\n", " "))
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(command string, files []string) string {
	switch {
	case command == "equal" && len(files) == 2:
		return equal(files[0], files[1])
	case command == "verdict" && len(files) == 1:
		if err := verdict(files[0]); err != nil {
			return "ERR " + err.Error()
		}
		return "OK"
	case command == "merge" && len(files) > 1:
		if err := merge(files[0], files[1:]); err != nil {
			return "err " + err.Error()
		}
		return "ok"
	}
	return "unknown command " + command
}

func bytesOf(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return data
}

func read(file string) (*profile.Profile, error) {
	return profile.ParseData(bytesOf(file))
}

func verdict(file string) error {
	data := bytesOf(file)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		gz, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		if data, err = io.ReadAll(gz); err != nil {
			return err
		}
	}
	p, err := profile.ParseUncompressed(data)
	if err != nil {
		return err
	}
	return p.CheckValid()
}

func equal(a, b string) string {
	pa, errA := read(a)
	pb, errB := read(b)
	switch {
	case errA != nil && errB != nil:
		return "both err"
	case errA != nil || errB != nil:
		return fmt.Sprintf("differ: error %v, error %v", errA, errB)
	}
	return difference(dump(pa), dump(pb))
}

func difference(a, b []string) string {
	for i := 0; i < len(a) || i < len(b); i++ {
		switch {
		case i >= len(a):
			return "differ: only the second has " + b[i]
		case i >= len(b):
			return "differ: only the first has " + a[i]
		case a[i] != b[i]:
			return fmt.Sprintf("differ: line %d: %q, %q", i, a[i], b[i])
		}
	}
	return "equal"
}

// dump is pprof's own text dump and what that leaves out.
func dump(p *profile.Profile) []string {
	lines := strings.Split(p.String(), "\n")
	lines = append(lines,
		fmt.Sprintf("time %d duration %d", p.TimeNanos, p.DurationNanos),
		fmt.Sprintf("default %q drop %q keep %q", p.DefaultSampleType, p.DropFrames, p.KeepFrames))
	for _, f := range p.Function {
		lines = append(lines, fmt.Sprintf("function %d %q %q %q %d", f.ID, f.Name, f.SystemName, f.Filename, f.StartLine))
	}
	for i, s := range p.Sample {
		for key, units := range s.NumUnit {
			if len(units) != len(s.NumLabel[key]) {
				lines = append(lines, fmt.Sprintf("sample %d: %q has %d units", i, key, len(units)))
			}
		}
	}
	return lines
}

func merge(out string, files []string) error {
	var sources []*profile.Profile
	for _, file := range files {
		p, err := read(file)
		if err != nil {
			return err
		}
		sources = append(sources, p)
	}
	merged, err := profile.Merge(sources)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	return merged.WriteUncompressed(f)
}
