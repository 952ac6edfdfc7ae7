package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

const (
	queries = "/parca.query.v1alpha1.QueryService/"
	files   = "/parca.debuginfo.v1alpha1.DebuginfoService/"
	kind    = "process_cpu:cpu:nanoseconds:cpu:nanoseconds:delta"
)

func labels(pairs ...string) (set msg) {
	for i := 0; i < len(pairs); i += 2 {
		set = set.bytes(1, message().text(1, pairs[i]).text(2, pairs[i+1]))
	}
	return
}

// A pprof of main -> leaf and main -> other, by field numbers too.
func pprof(at time.Time, leaf, other int64) []byte {
	words := []string{"", "cpu", "nanoseconds", "main", "leaf", "other", "main.go"}
	two := func(a, b int64) msg { return message().number(1, a).number(2, b) }
	p := message().bytes(1, two(1, 2)).bytes(11, two(1, 2)).number(12, 10_000_000).number(9, at.UnixNano()).number(10, 1e9)
	for i := range int64(3) {
		p = p.bytes(5, message().number(1, i+1).number(2, i+3).number(4, 6))
		p = p.bytes(4, message().number(1, i+1).bytes(4, message().number(1, i+1).number(2, 10+i)))
	}
	p = p.bytes(2, message().number(1, 2).number(1, 1).number(2, leaf))
	p = p.bytes(2, message().number(1, 3).number(1, 1).number(2, other))
	for _, w := range words {
		p = p.text(6, w)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must2(w.Write(p))
	must(w.Close())
	return out.Bytes()
}

func must2[T any](value T, err error) T {
	must(err)
	return value
}

func stamp(t time.Time) msg {
	return message().number(1, t.Unix()).number(2, int64(t.Nanosecond()))
}

func text(list []msg) (out []string) {
	for _, m := range list {
		out = append(out, string(m))
	}
	return
}

// One row of an Arrow record, by the names of its columns.
func rows(record msg, names ...string) (out [][]string) {
	reader := must2(ipc.NewReader(bytes.NewReader(record)))
	if !reader.Next() {
		must(fmt.Errorf("no record: %w", reader.Err()))
	}
	batch := reader.RecordBatch()
	for row := range int(batch.NumRows()) {
		line := []string{}
		for _, name := range names {
			at := batch.Schema().FieldIndices(name)
			if len(at) != 1 {
				must(fmt.Errorf("column %q is there %d times", name, len(at)))
			}
			column := batch.Column(at[0])
			if dict, ok := column.(*array.Dictionary); ok && !dict.IsNull(row) {
				if words, ok := dict.Dictionary().(*array.Binary); ok {
					line = append(line, string(words.Value(dict.GetValueIndex(row))))
					continue
				}
			}
			line = append(line, column.ValueStr(row))
		}
		out = append(out, line)
	}
	if reader.Next() || reader.Err() != nil {
		must(fmt.Errorf("more than one record: %w", reader.Err()))
	}
	return
}

// Everything that Parca's page and its command line ask for; the answers as JSON.
func ask(address, program string) {
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	conn := dial(address)
	call := func(method string, in msg) msg { return must2(unary(ctx, conn, method, in)) }
	out := map[string]any{}

	end := time.Now().Truncate(time.Millisecond)
	first, second := end.Add(-2*time.Minute), end.Add(-time.Minute)
	for _, p := range []struct {
		version     string
		at          time.Time
		leaf, other int64
	}{{"1", first, 300, 100}, {"2", second, 500, 100}} {
		set := labels("__name__", "process_cpu", "service_name", "shop", "version", p.version)
		raw := message().bytes(1, pprof(p.at, p.leaf, p.other))
		call(store+"WriteRaw", message().bytes(2, message().bytes(1, set).bytes(2, raw)))
	}

	start := stamp(end.Add(-time.Hour))
	var types []string
	for _, t := range call(queries+"ProfileTypes", message().bytes(1, start).bytes(2, stamp(end))).list(1) {
		types = append(types, fmt.Sprintf("%s:%s:%s", t.find(1), t.find(2), t.find(3)))
	}
	out["types"] = types
	out["has_data"] = call(queries+"HasProfileData", message()).value(1)
	out["labels"] = text(call(queries+"Labels", message()).list(1))
	out["values"] = text(call(queries+"Values", message().text(1, "version")).list(1))

	query := kind + `{service_name="shop"}`
	lines := call(queries+"QueryRange", message().text(1, query).bytes(2, start).bytes(3, stamp(end)).bytes(5, message().number(1, 30)))
	var sums []int64
	for _, line := range lines.list(1) {
		var sum int64
		for _, point := range line.list(2) {
			sum += point.value(2)
		}
		sums = append(sums, sum)
	}
	out["range"] = sums

	merge := func(query string) msg { return message().text(1, query).bytes(2, start).bytes(3, stamp(end)) }
	merged := func(report int64) msg {
		return call(queries+"Query", message().number(1, 2).bytes(3, merge(query)).number(5, report))
	}
	single := message().number(1, 0).bytes(4, message().bytes(1, stamp(second)).text(2, query)).number(5, 5)
	side := func(version string) msg {
		return message().number(1, 1).bytes(2, merge(kind+`{version="`+version+`"}`))
	}
	both := message().bytes(1, side("1")).bytes(2, side("2"))
	diff := message().number(1, 1).bytes(2, both)

	profile := merged(1)
	reader := must2(gzip.NewReader(bytes.NewReader(profile.find(6))))
	plain := must2(io.ReadAll(reader))
	out["pprof"] = []any{profile.value(9), bytes.Contains(plain, []byte("leaf"))}
	flame := merged(5)
	columns := []string{"function_name", "function_file_name", "cumulative", "flat", "children", "parent", "depth", "value_offset"}
	out["flame"] = rows(flame.find(11).find(1), columns...)
	out["flame_meta"] = []any{flame.value(9), string(flame.find(11).find(2)), flame.find(11).value(3)}
	out["single"] = rows(call(queries+"Query", single).find(11).find(1), "function_name", "cumulative")
	out["diff"] = rows(call(queries+"Query", withReport(diff, 5)).find(11).find(1), "function_name", "cumulative", "diff")
	out["table"] = rows(merged(7).find(13).find(1), "function_name", "cumulative", "flat", "callers", "callees")
	out["table_diff"] = rows(call(queries+"Query", withReport(diff, 7)).find(13).find(1), "function_name", "cumulative_diff", "flat_diff")
	_, err := unary(ctx, conn, queries+"Query", message().number(1, 2).bytes(3, merge(query)).number(5, 3))
	out["callgraph"] = fmt.Sprint(err)
	out["debuginfo"] = upload(ctx, conn, program)
	must(json.NewEncoder(os.Stdout).Encode(out))
}

// withReport copies: appending to one message twice would write over the first.
func withReport(query msg, report int64) msg {
	return append(msg{}, query...).number(5, report)
}

// upload sends our own executable as its agent does: asked, begun, sent in pieces, finished, asked again.
func upload(ctx context.Context, conn connection, program string) []any {
	data := must2(os.ReadFile(program))
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	id := buildIDOf(program)
	question := message().text(1, id).text(2, hash).number(4, 1).number(5, 1)
	should := func() msg { return must2(unary(ctx, conn, files+"ShouldInitiateUpload", question)) }
	before := should()
	begun := must2(unary(ctx, conn, files+"InitiateUpload", message().text(1, id).number(2, int64(len(data))).text(3, hash).number(5, 1)))
	how := begun.find(1)
	info := message().text(1, id).text(2, string(how.find(2)))
	stream := must2(conn.stream(ctx, files+"Upload"))
	must(stream.send(message().bytes(1, info)))
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 1<<20)
		must(stream.send(message().bytes(2, rest[:n])))
		rest = rest[n:]
	}
	must(stream.CloseSend())
	sent := must2(stream.receive())
	must2(unary(ctx, conn, files+"MarkUploadFinished", info))
	after := should()
	return []any{before.value(1), how.value(3), sent.value(2) == int64(len(data)), after.value(1)}
}
