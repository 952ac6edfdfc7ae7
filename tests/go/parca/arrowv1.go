package main

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Schema v1: samples name their stacks by id.
func samplesV1() arrow.RecordBatch {
	word := runsOf(dictOf(arrow.BinaryTypes.Binary))
	i64 := arrow.PrimitiveTypes.Int64
	var fields []arrow.Field
	var columns []arrow.Array
	add := func(name string, column arrow.Array, nullable bool) {
		fields = append(fields, arrow.Field{Name: name, Type: column.DataType(), Nullable: nullable})
		columns = append(columns, column)
	}
	for _, name := range labelNames {
		add("labels."+name, texts(word, each(func(s sample) string { return s.labels()[name] })), true)
	}
	ids := make([]string, len(samples))
	for i := range samples {
		id := stackID(i)
		ids[i] = string(id[:])
	}
	add("stacktrace_id", texts(word, ids), false)
	add("value", numbers(i64, eachNumber(func(s sample) int64 { return s.value })), false)
	for i, c := range kindColumns(word) {
		add(kindNames[i], c, false)
	}
	add("period", numbers(runsOf(i64), eachNumber(period)), false)
	add("duration", numbers(runsOf(i64), eachNumber(func(sample) int64 { return 1e9 })), false)
	add("timestamp", numbers(runsOf(i64), eachNumber(func(s sample) int64 { return T0 + s.after })), false)
	return array.NewRecordBatch(arrow.NewSchema(fields, note("v1")), columns, int64(len(samples)))
}

// The second record of schema v1: the stacks of these ids. Null columns that are not nullable are the agent's.
func stacksV1(ids *array.Binary) arrow.RecordBatch {
	word := dictOf(arrow.BinaryTypes.Binary)
	u64, i64 := arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Int64
	line := arrow.StructOf(
		arrow.Field{Name: "line", Type: i64}, arrow.Field{Name: "column", Type: u64},
		arrow.Field{Name: "function_name", Type: word}, arrow.Field{Name: "function_system_name", Type: word},
		arrow.Field{Name: "function_filename", Type: runsOf(word)}, arrow.Field{Name: "function_start_line", Type: i64})
	location := arrow.StructOf(
		arrow.Field{Name: "address", Type: u64}, arrow.Field{Name: "frame_type", Type: runsOf(word)},
		arrow.Field{Name: "mapping_start", Type: runsOf(u64)}, arrow.Field{Name: "mapping_limit", Type: runsOf(u64)},
		arrow.Field{Name: "mapping_offset", Type: runsOf(u64)}, arrow.Field{Name: "mapping_file", Type: runsOf(word)},
		arrow.Field{Name: "mapping_build_id", Type: runsOf(word)}, arrow.Field{Name: "lines", Type: arrow.ListOf(line)})
	list := array.NewBuilder(mem, arrow.ListOf(location)).(*array.ListBuilder)
	rows := list.ValueBuilder().(*array.StructBuilder)
	lines := rows.FieldBuilder(7).(*array.ListBuilder)
	lineRows := lines.ValueBuilder().(*array.StructBuilder)
	put := func(b array.Builder, v string) {
		if runs, ok := b.(*array.RunEndEncodedBuilder); ok {
			runs.Append(1)
			b = runs.ValueBuilder()
		}
		if v == "" {
			b.AppendNull()
			return
		}
		must(b.(*array.BinaryDictionaryBuilder).AppendString(v))
	}
	complete := array.NewBooleanBuilder(mem)
	for at := range ids.Len() {
		var stack []frame
		for i, s := range samples {
			if id := stackID(i); string(id[:]) == string(ids.Value(at)) {
				stack = s.stack
			}
		}
		list.Append(len(stack) > 0)
		for _, f := range stack {
			rows.Append(true)
			rows.FieldBuilder(0).(*array.Uint64Builder).Append(f.address)
			put(rows.FieldBuilder(1), f.kind)
			for i := 2; i <= 4; i++ {
				runs := rows.FieldBuilder(i).(*array.RunEndEncodedBuilder)
				runs.Append(1)
				runs.ValueBuilder().(*array.Uint64Builder).Append(0)
			}
			put(rows.FieldBuilder(5), f.file)
			put(rows.FieldBuilder(6), f.build)
			lines.Append(f.function != "")
			if f.function == "" {
				continue
			}
			lineRows.Append(true)
			lineRows.FieldBuilder(0).(*array.Int64Builder).Append(f.line)
			lineRows.FieldBuilder(1).(*array.Uint64Builder).Append(0)
			put(lineRows.FieldBuilder(2), f.function)
			must(lineRows.FieldBuilder(3).(*array.BinaryDictionaryBuilder).AppendString(""))
			put(lineRows.FieldBuilder(4), f.source)
			lineRows.FieldBuilder(5).(*array.Int64Builder).Append(0)
		}
		complete.Append(true)
	}
	fields := []arrow.Field{{Name: "stacktrace_id", Type: arrow.BinaryTypes.Binary},
		{Name: "is_complete", Type: arrow.FixedWidthTypes.Boolean}, {Name: "locations", Type: list.Type()}}
	columns := []arrow.Array{ids, complete.NewArray(), list.NewArray()}
	return array.NewRecordBatch(arrow.NewSchema(fields, note("v1")), columns, int64(ids.Len()))
}
