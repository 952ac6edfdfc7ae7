// Speaks to a server as Parca's clients do: parca-agent's Arrow writes by Apache Arrow's own library.
//
//	parca fixtures FOLDER   writes recorded requests
//	parca write ADDRESS     sends them by gRPC
//	parca ask ADDRESS FILE  sends pprof and an executable, and asks for all that Parca's page asks
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func allIDs() *array.Binary {
	ids := array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary)
	seen := map[[16]byte]bool{}
	for i := range samples {
		if id := stackID(i); !seen[id] {
			seen[id] = true
			ids.Append(id[:])
		}
	}
	return ids.NewArray().(*array.Binary)
}

func fixtures(folder string) {
	write := func(name string, data []byte) {
		must(os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	write("v2-lz4.arrow", encoded(recordV2(), ipc.WithLZ4()))
	write("v2-zstd.arrow", encoded(recordV2(), ipc.WithZstd()))
	write("v2-plain.arrow", encoded(recordV2()))
	write("v1-samples.arrow", encoded(samplesV1()))
	write("v1-stacks.arrow", encoded(stacksV1(allIDs())))
}

const store = "/parca.profilestore.v1alpha1.ProfileStoreService/"

// WriteArrow of schema v2, then the three messages of Write of schema v1, under other names.
func write(address string) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	conn := dial(address)
	shift(time.Now().Add(-time.Minute).UnixNano() - T0)
	_, err := unary(ctx, conn, store+"WriteArrow", message().bytes(1, encoded(recordV2(), ipc.WithLZ4())))
	must(err)
	fmt.Println("v2 ok")
	rename("old-")
	answer, err := exchange(ctx, conn, encoded(samplesV1()))
	must(err)
	fmt.Println("v1", answer)
	_, err = unary(ctx, conn, store+"WriteArrow", message().bytes(1, []byte("no arrow at all")))
	fmt.Println("broken", err)
}

// exchange sends samples, and the stacks that are asked for; how many those were.
func exchange(ctx context.Context, conn connection, record []byte) (string, error) {
	stream, err := conn.stream(ctx, store+"Write")
	if err != nil {
		return "", err
	}
	if err := stream.send(message().bytes(1, record)); err != nil {
		return "", err
	}
	answer, err := stream.receive()
	if err != nil {
		return "", err
	}
	asked, err := ipc.NewReader(bytes.NewReader(answer.find(1)))
	if err != nil {
		return "", err
	}
	if !asked.Next() {
		return "", fmt.Errorf("no record of ids: %w", asked.Err())
	}
	ids := asked.RecordBatch().Column(0).(*array.Binary)
	if err := stream.send(message().bytes(1, encoded(stacksV1(ids)))); err != nil {
		return "", err
	}
	if err := stream.end(); err != nil {
		return "", err
	}
	return fmt.Sprintf("ok, asked for %d stacks by %s", ids.Len(), asked.Schema().Field(0).Name), nil
}

// shift moves all samples by so many nanoseconds.
func shift(by int64) {
	for i := range samples {
		samples[i].after += by
	}
}

// rename makes the processes others.
func rename(front string) {
	for i := range samples {
		samples[i].comm = front + samples[i].comm
	}
}

func main() {
	switch os.Args[1] {
	case "fixtures":
		fixtures(os.Args[2])
	case "write":
		write(os.Args[2])
	case "ask":
		ask(os.Args[2], os.Args[3])
	}
}
