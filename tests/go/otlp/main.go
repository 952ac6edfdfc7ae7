// Sends known profiles with the OpenTelemetry Collector's own client code: by gRPC, gRPC with gzip, and
// HTTP as protobuf and JSON. Prints what the server answered, one line a way.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Three samples of a 100 Hz timer in main -> leaf, and one with only two timestamps in main.
func profiles(service string) pprofile.Profiles {
	all := pprofile.NewProfiles()
	d := all.Dictionary()
	d.StringTable().Append("", "samples", "count", "cpu", "nanoseconds", "main", "leaf", "app.c")
	d.MappingTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	for i, name := range []int32{5, 6} {
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(name)
		f.SetFilenameStrindex(7)
		l := d.LocationTable().AppendEmpty()
		l.SetAddress(uint64(0x1000 + i))
		line := l.Lines().AppendEmpty()
		line.SetFunctionIndex(int32(i + 1))
		line.SetLine(10)
	}
	d.StackTable().AppendEmpty().LocationIndices().Append(2, 1)
	d.StackTable().AppendEmpty().LocationIndices().Append(1)

	r := all.ResourceProfiles().AppendEmpty()
	r.Resource().Attributes().PutStr("service.name", service)
	p := r.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	p.SampleType().SetTypeStrindex(1)
	p.SampleType().SetUnitStrindex(2)
	p.PeriodType().SetTypeStrindex(3)
	p.PeriodType().SetUnitStrindex(4)
	p.SetPeriod(10_000_000)
	p.SetTime(pcommon.NewTimestampFromTime(time.Now().Add(-time.Minute)))
	p.SetDurationNano(1_000_000_000)
	s := p.Samples().AppendEmpty()
	s.SetStackIndex(1)
	s.Values().Append(3)
	s = p.Samples().AppendEmpty()
	s.SetStackIndex(2)
	s.TimestampsUnixNano().Append(1, 2)
	return all
}

func report(way string, response pprofileotlp.ExportResponse) {
	partial := response.PartialSuccess()
	fmt.Printf("%s rejected=%d %s\n", way, partial.RejectedProfiles(), partial.ErrorMessage())
}

func post(url, form string, body []byte) []byte {
	answer, err := http.Post(url+"/v1development/profiles", form, bytes.NewReader(body))
	must(err)
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	must(err)
	if answer.StatusCode != 200 {
		must(fmt.Errorf("%s: %s: %q", form, answer.Status, got))
	}
	return got
}

func main() {
	address := os.Args[1]
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	client := pprofileotlp.NewGRPCClient(connection)
	ctx := context.Background()

	response, err := client.Export(ctx, pprofileotlp.NewExportRequestFromProfiles(profiles("grpc")))
	must(err)
	report("grpc", response)
	request := pprofileotlp.NewExportRequestFromProfiles(profiles("grpc-gzip"))
	response, err = client.Export(ctx, request, grpc.UseCompressor(gzip.Name))
	must(err)
	report("grpc-gzip", response)

	body, err := pprofileotlp.NewExportRequestFromProfiles(profiles("http-protobuf")).MarshalProto()
	must(err)
	response = pprofileotlp.NewExportResponse()
	must(response.UnmarshalProto(post("http://"+address, "application/x-protobuf", body)))
	report("http-protobuf", response)
	body, err = pprofileotlp.NewExportRequestFromProfiles(profiles("http-json")).MarshalJSON()
	must(err)
	response = pprofileotlp.NewExportResponse()
	must(response.UnmarshalJSON(post("http://"+address, "application/json", body)))
	report("http-json", response)

	broken := profiles("broken")
	broken.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples().At(0).SetStackIndex(99)
	response, err = client.Export(ctx, pprofileotlp.NewExportRequestFromProfiles(broken))
	must(err)
	report("broken", response)
}
