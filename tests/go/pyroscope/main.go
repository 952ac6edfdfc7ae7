// Pyroscope's own clients: pyroscope-go pushes this program's CPU profile (/ingest), the Connect client
// pushes a known profile (push.v1) and asks for it (querier.v1). Prints what came back as JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"github.com/grafana/pyroscope-go"
)

const kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

//go:noinline
func hotLoop(until time.Time) (sum uint64) {
	for time.Now().Before(until) {
		for i := uint64(0); i < 1_000_000; i++ {
			sum = sum*31 + i
		}
	}
	return sum
}

func pprofOf(leafValue int64, at time.Time) []byte {
	function := func(id uint64, name string) (*profile.Function, *profile.Location) {
		f := &profile.Function{ID: id, Name: name, SystemName: name, Filename: "app.go"}
		return f, &profile.Location{ID: id, Line: []profile.Line{{Function: f, Line: 3}}}
	}
	mainFunction, mainLocation := function(1, "main")
	leafFunction, leafLocation := function(2, "leaf")
	cpu := &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	p := &profile.Profile{
		SampleType:    []*profile.ValueType{cpu},
		PeriodType:    cpu,
		Period:        10_000_000,
		TimeNanos:     at.UnixNano(),
		DurationNanos: int64(10 * time.Second),
		Function:      []*profile.Function{mainFunction, leafFunction},
		Location:      []*profile.Location{mainLocation, leafLocation},
		Sample: []*profile.Sample{
			{Location: []*profile.Location{leafLocation, mainLocation}, Value: []int64{leafValue}},
			{Location: []*profile.Location{mainLocation}, Value: []int64{100}},
		},
	}
	var out bytes.Buffer
	must(p.Write(&out))
	return out.Bytes()
}

func push(client pushv1connect.PusherServiceClient, version string, leafValue int64, at time.Time) {
	series := &pushv1.RawProfileSeries{
		Labels: []*typesv1.LabelPair{
			{Name: "__name__", Value: "process_cpu"},
			{Name: "service_name", Value: "shop"},
			{Name: "version", Value: version},
		},
		Samples: []*pushv1.RawSample{{RawProfile: pprofOf(leafValue, at), ID: "id-" + version}},
	}
	request := &pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{series}}
	_, err := client.Push(context.Background(), connect.NewRequest(request))
	must(err)
	// A retry with the same id must not count twice.
	_, err = client.Push(context.Background(), connect.NewRequest(request))
	must(err)
}

func main() {
	address := "http://" + os.Args[1]
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "gopusher",
		ServerAddress:   address,
		Tags:            map[string]string{"region": "north"},
		UploadRate:      time.Second,
		ProfileTypes:    []pyroscope.ProfileType{pyroscope.ProfileCPU},
	})
	must(err)
	hotLoop(time.Now().Add(3 * time.Second))
	must(profiler.Stop())

	ctx := context.Background()
	now := time.Now()
	json1 := pushv1connect.NewPusherServiceClient(http.DefaultClient, address, connect.WithProtoJSON())
	binary := pushv1connect.NewPusherServiceClient(http.DefaultClient, address)
	push(json1, "1", 300, now.Add(-2*time.Minute))
	push(binary, "2", 700, now.Add(-time.Minute))

	start, end := now.Add(-time.Hour).UnixMilli(), now.Add(time.Minute).UnixMilli()
	out := map[string]any{}
	for _, way := range []string{"json", "proto"} {
		var options []connect.ClientOption
		if way == "json" {
			options = append(options, connect.WithProtoJSON())
		}
		client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, address, options...)
		merge := func(selector string) *querierv1.SelectMergeStacktracesRequest {
			return &querierv1.SelectMergeStacktracesRequest{
				ProfileTypeID: kind, LabelSelector: selector, Start: start, End: end,
			}
		}
		types, err := client.ProfileTypes(ctx, connect.NewRequest(&querierv1.ProfileTypesRequest{Start: start, End: end}))
		must(err)
		var ids []string
		for _, t := range types.Msg.ProfileTypes {
			ids = append(ids, t.ID)
		}
		names, err := client.LabelNames(ctx, connect.NewRequest(&typesv1.LabelNamesRequest{Start: start, End: end}))
		must(err)
		values, err := client.LabelValues(ctx, connect.NewRequest(&typesv1.LabelValuesRequest{
			Name: "version", Matchers: []string{`{__profile_type__="` + kind + `"}`}, Start: start, End: end,
		}))
		must(err)
		series, err := client.Series(ctx, connect.NewRequest(&querierv1.SeriesRequest{
			Matchers: []string{`{service_name="shop"}`}, LabelNames: []string{"version", "__profile_type__"}, Start: start, End: end,
		}))
		must(err)
		graph, err := client.SelectMergeStacktraces(ctx, connect.NewRequest(merge(`{service_name="shop"}`)))
		must(err)
		diff, err := client.Diff(ctx, connect.NewRequest(&querierv1.DiffRequest{
			Left: merge(`{version="1"}`), Right: merge(`{version="2"}`),
		}))
		must(err)
		lines, err := client.SelectSeries(ctx, connect.NewRequest(&querierv1.SelectSeriesRequest{
			ProfileTypeID: kind, LabelSelector: `{service_name="shop"}`, Start: start, End: end,
			GroupBy: []string{"version"}, Step: 15,
		}))
		must(err)
		out[way] = map[string]any{
			"types": ids, "labels": names.Msg.Names, "versions": values.Msg.Names,
			"series": series.Msg.LabelsSet, "graph": graph.Msg.Flamegraph, "diff": diff.Msg.Flamegraph,
			"lines": lines.Msg.Series,
		}
		if way == "proto" {
			merged, err := client.SelectMergeProfile(ctx, connect.NewRequest(&querierv1.SelectMergeProfileRequest{
				ProfileTypeID: kind, LabelSelector: `{service_name="shop"}`, Start: start, End: end,
			}))
			must(err)
			var total int64
			for _, sample := range merged.Msg.Sample {
				total += sample.Value[0]
			}
			out["merged_total"] = total
			pushed, err := client.SelectMergeStacktraces(ctx, connect.NewRequest(merge(`{service_name="gopusher",region="north"}`)))
			must(err)
			out["gopusher"] = pushed.Msg.Flamegraph
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(out))
}
