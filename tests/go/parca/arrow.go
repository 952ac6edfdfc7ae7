package main

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// T0 is the time of the first sample of the fixtures.
const T0 = 1_796_000_000_000_000_000

var mem = memory.DefaultAllocator

// A frame as parca-agent sends it: native ones without a name, others with.
type frame struct {
	kind             string
	address          uint64
	file, build      string
	function, source string
	line             int64
}

type sample struct {
	stack                 []frame
	comm, request, thread string
	after                 int64
	value                 int64
	offCPU                bool
}

const buildID = "aabbccddeeff00112233445566778899aabbccdd"

var (
	leaf    = frame{kind: "native", address: 0x1234, file: "app", build: buildID}
	start   = frame{kind: "native", address: 0x2000, file: "app", build: buildID}
	syscall = frame{kind: "kernel", address: 0xffffffff81000010, file: "[kernel.kallsyms]", function: "do_syscall_64", source: "vmlinux"}
	handler = frame{kind: "cpython", address: 7, function: "handler", source: "app.py", line: 42}
	samples = []sample{
		{[]frame{leaf, start}, "web", "", "t1", 0, 1, false},
		{[]frame{leaf, start}, "web", "", "t2", 1e9, 1, false},
		{[]frame{syscall, start}, "web", "", "t1", 2e9, 1, false},
		{[]frame{handler, start}, "db", "r1", "t1", 2e9, 1, false},
		{[]frame{leaf, start}, "db", "r1", "t1", 3e9, 1, false},
		{[]frame{syscall, start}, "web", "", "t1", 3e9, 5_000_000, true},
		{nil, "web", "", "t1", 4e9, 1, false},
	}
)

func (s sample) kinds() (kind, unit, periodType, periodUnit string, period int64) {
	if s.offCPU {
		return "wallclock", "nanoseconds", "samples", "count", 0
	}
	return "samples", "count", "cpu", "nanoseconds", 52_631_578
}

func (s sample) labels() map[string]string {
	return map[string]string{"comm": s.comm, "request": s.request, "thread_name": s.thread, "node": "n1"}
}

var labelNames = []string{"comm", "node", "request", "thread_name"}

func dictOf(values arrow.DataType) *arrow.DictionaryType {
	return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: values}
}

func runsOf(values arrow.DataType) arrow.DataType {
	return arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, values)
}

// A column of runs or a dictionary, of texts; an empty one is null.
func texts(kind arrow.DataType, values []string) arrow.Array {
	b := array.NewBuilder(mem, kind)
	last := -1
	for i, v := range values {
		runs, isRuns := b.(*array.RunEndEncodedBuilder)
		if isRuns && last >= 0 && values[last] == v {
			runs.ContinueRun(1)
			continue
		}
		last = i
		inner := b
		if isRuns {
			runs.Append(1)
			inner = runs.ValueBuilder()
		}
		if v == "" {
			inner.AppendNull()
			continue
		}
		switch inner := inner.(type) {
		case *array.BinaryDictionaryBuilder:
			must(inner.AppendString(v))
		case *array.StringBuilder:
			inner.Append(v)
		case *array.StringViewBuilder:
			inner.Append(v)
		}
	}
	return b.NewArray()
}

func numbers(kind arrow.DataType, values []int64) arrow.Array {
	b := array.NewBuilder(mem, kind)
	for _, v := range values {
		inner := b
		if runs, ok := b.(*array.RunEndEncodedBuilder); ok {
			runs.Append(1)
			inner = runs.ValueBuilder()
		}
		switch inner := inner.(type) {
		case *array.Int32Builder:
			inner.Append(int32(v))
		case *array.Int64Builder:
			inner.Append(v)
		case *array.Uint32Builder:
			inner.Append(uint32(v))
		case *array.Uint64Builder:
			inner.Append(uint64(v))
		case *array.TimestampBuilder:
			inner.Append(arrow.Timestamp(v))
		}
	}
	return b.NewArray()
}

func structOf(kind arrow.DataType, n int, columns ...arrow.Array) arrow.Array {
	data := make([]arrow.ArrayData, len(columns))
	for i, c := range columns {
		data[i] = c.Data()
	}
	return array.MakeFromData(array.NewData(kind, n, []*memory.Buffer{nil}, data, 0, 0))
}

// A list view; without items it is null when `nulls` says so.
func views(items arrow.Array, starts, sizes []int64, nulls bool) arrow.Array {
	var valid *memory.Buffer
	missing := 0
	if nulls {
		bits := make([]byte, (len(sizes)+7)/8)
		for i, n := range sizes {
			if n > 0 {
				bits[i/8] |= 1 << (i % 8)
			} else {
				missing++
			}
		}
		valid = memory.NewBufferBytes(bits)
	}
	buffer := func(v []int64) *memory.Buffer {
		return numbers(arrow.PrimitiveTypes.Int32, v).Data().Buffers()[1]
	}
	return array.MakeFromData(array.NewData(arrow.ListViewOf(items.DataType()), len(sizes),
		[]*memory.Buffer{valid, buffer(starts), buffer(sizes)}, []arrow.ArrayData{items.Data()}, missing, 0))
}

type places struct{ starts, sizes []int64 }

func (p *places) add(start, size int) {
	p.starts, p.sizes = append(p.starts, int64(start)), append(p.sizes, int64(size))
}

// The stacks of schema v2: a list view of a dictionary of locations, which have functions in a dictionary.
func stacksV2() arrow.Array {
	u64 := arrow.PrimitiveTypes.Uint64
	text := dictOf(arrow.BinaryTypes.String)
	function := arrow.StructOf(
		arrow.Field{Name: "system_name", Type: arrow.BinaryTypes.StringView, Nullable: true},
		arrow.Field{Name: "filename", Type: text, Nullable: true},
		arrow.Field{Name: "start_line", Type: u64})
	line := arrow.StructOf(
		arrow.Field{Name: "line", Type: u64},
		arrow.Field{Name: "column", Type: u64},
		arrow.Field{Name: "function", Type: dictOf(function)})
	location := arrow.StructOf(
		arrow.Field{Name: "address", Type: u64},
		arrow.Field{Name: "frame_type", Type: text, Nullable: true},
		arrow.Field{Name: "mapping_file", Type: text, Nullable: true},
		arrow.Field{Name: "mapping_build_id", Type: text, Nullable: true},
		arrow.Field{Name: "lines", Type: arrow.ListViewOf(line), Nullable: true})

	known := map[frame]int64{}
	var frames, functions []frame
	var indices []int64
	var stacks, lines places
	var lineNumbers []int64
	for _, s := range samples {
		stacks.add(len(indices), len(s.stack))
		for _, f := range s.stack {
			at, ok := known[f]
			if !ok {
				at = int64(len(frames))
				known[f] = at
				frames = append(frames, f)
				n := 0
				if f.function != "" {
					n = 1
				}
				lines.add(len(functions), n)
				if n == 1 {
					functions = append(functions, f)
					lineNumbers = append(lineNumbers, f.line)
				}
			}
			indices = append(indices, at)
		}
	}
	pick := func(of []frame, what func(frame) string) []string {
		out := make([]string, len(of))
		for i, f := range of {
			out[i] = what(f)
		}
		return out
	}
	zeros := make([]int64, len(functions))
	order := make([]int64, len(functions))
	for i := range order {
		order[i] = int64(i)
	}
	functionRows := structOf(function, len(functions),
		texts(arrow.BinaryTypes.StringView, pick(functions, func(f frame) string { return f.function })),
		texts(text, pick(functions, func(f frame) string { return f.source })),
		numbers(u64, zeros))
	functionDict := array.NewDictionaryArray(dictOf(function), numbers(arrow.PrimitiveTypes.Uint32, order), functionRows)
	lineRows := structOf(line, len(functions), numbers(u64, lineNumbers), numbers(u64, zeros), functionDict)
	addresses := make([]int64, len(frames))
	for i, f := range frames {
		addresses[i] = int64(f.address)
	}
	locations := structOf(location, len(frames),
		numbers(u64, addresses),
		texts(text, pick(frames, func(f frame) string { return f.kind })),
		texts(text, pick(frames, func(f frame) string { return f.file })),
		texts(text, pick(frames, func(f frame) string { return f.build })),
		views(lineRows, lines.starts, lines.sizes, true))
	dict := array.NewDictionaryArray(dictOf(location), numbers(arrow.PrimitiveTypes.Uint32, indices), locations)
	return views(dict, stacks.starts, stacks.sizes, false)
}

func stackID(i int) [16]byte {
	// Equal stacks have equal ids.
	for j := range i {
		if len(samples[j].stack) == len(samples[i].stack) && (len(samples[i].stack) == 0 || samples[j].stack[0] == samples[i].stack[0]) {
			i = j
			break
		}
	}
	return [16]byte{byte(i + 1), 15: 0xee}
}

func each(what func(sample) string) []string {
	out := make([]string, len(samples))
	for i, s := range samples {
		out[i] = what(s)
	}
	return out
}

func eachNumber(what func(sample) int64) []int64 {
	out := make([]int64, len(samples))
	for i, s := range samples {
		out[i] = what(s)
	}
	return out
}

func kindColumns(of arrow.DataType) (out [6]arrow.Array) {
	words := func(at int) []string {
		return each(func(s sample) string {
			kind, unit, periodType, periodUnit, _ := s.kinds()
			return []string{"parca_agent", kind, unit, periodType, periodUnit, "delta"}[at]
		})
	}
	for at := range out {
		out[at] = texts(of, words(at))
	}
	return
}

var kindNames = []string{"producer", "sample_type", "sample_unit", "period_type", "period_unit", "temporality"}

func period(s sample) int64 {
	_, _, _, _, p := s.kinds()
	return p
}

func note(version string) *arrow.Metadata {
	m := arrow.NewMetadata([]string{"parca_write_schema_version"}, []string{version})
	return &m
}

// One record with everything, as parca-agent 0.47 and newer send it.
func recordV2() arrow.RecordBatch {
	label := runsOf(dictOf(arrow.BinaryTypes.String))
	var labelFields []arrow.Field
	var labels []arrow.Array
	for _, name := range labelNames {
		labelFields = append(labelFields, arrow.Field{Name: name, Type: label, Nullable: true})
		labels = append(labels, texts(label, each(func(s sample) string { return s.labels()[name] })))
	}
	stacks := stacksV2()
	uuids := extensions.NewUUIDBuilder(mem)
	for i := range samples {
		uuids.AppendBytes(stackID(i))
	}
	i64 := arrow.PrimitiveTypes.Int64
	fields := []arrow.Field{{Name: "labels", Type: arrow.StructOf(labelFields...)},
		{Name: "stacktrace", Type: stacks.DataType(), Nullable: true},
		{Name: "stacktrace_id", Type: extensions.NewUUIDType()}, {Name: "value", Type: i64}}
	columns := []arrow.Array{structOf(arrow.StructOf(labelFields...), len(samples), labels...), stacks, uuids.NewArray(),
		numbers(i64, eachNumber(func(s sample) int64 { return s.value }))}
	for i, c := range kindColumns(runsOf(arrow.BinaryTypes.String)) {
		fields = append(fields, arrow.Field{Name: kindNames[i], Type: c.DataType(), Nullable: i == 5})
		columns = append(columns, c)
	}
	stamp := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	fields = append(fields, arrow.Field{Name: "period", Type: runsOf(i64)},
		arrow.Field{Name: "duration", Type: runsOf(arrow.PrimitiveTypes.Uint64)}, arrow.Field{Name: "timestamp", Type: stamp})
	columns = append(columns, numbers(runsOf(i64), eachNumber(period)),
		numbers(runsOf(arrow.PrimitiveTypes.Uint64), eachNumber(func(sample) int64 { return 1e9 })),
		numbers(stamp, eachNumber(func(s sample) int64 { return T0 + s.after })))
	return array.NewRecordBatch(arrow.NewSchema(fields, note("v2")), columns, int64(len(samples)))
}

func encoded(record arrow.RecordBatch, options ...ipc.Option) []byte {
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(options, ipc.WithSchema(record.Schema()))...)
	must(w.Write(record))
	must(w.Close())
	return out.Bytes()
}
