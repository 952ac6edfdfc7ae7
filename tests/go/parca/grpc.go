package main

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are written and read by field numbers: Parca's generated code is in no module that can be had.
type msg []byte

func message() msg { return msg{} }

func (m msg) bytes(field int, value []byte) msg {
	m = protowire.AppendTag(m, protowire.Number(field), protowire.BytesType)
	return protowire.AppendBytes(m, value)
}

func (m msg) text(field int, value string) msg { return m.bytes(field, []byte(value)) }

func (m msg) number(field int, value int64) msg {
	m = protowire.AppendTag(m, protowire.Number(field), protowire.VarintType)
	return protowire.AppendVarint(m, uint64(value))
}

// all are the values of a field: bytes, or the number's.
func (m msg) each(visit func(field int, bytes msg, number int64)) {
	for rest := []byte(m); len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		must(protowire.ParseError(n))
		rest = rest[n:]
		switch kind {
		case protowire.BytesType:
			value, n := protowire.ConsumeBytes(rest)
			must(protowire.ParseError(n))
			visit(int(field), value, 0)
			rest = rest[n:]
		case protowire.VarintType:
			value, n := protowire.ConsumeVarint(rest)
			must(protowire.ParseError(n))
			visit(int(field), nil, int64(value))
			rest = rest[n:]
		default:
			n := protowire.ConsumeFieldValue(field, kind, rest)
			must(protowire.ParseError(n))
			rest = rest[n:]
		}
	}
}

func (m msg) find(field int) (out msg) {
	m.each(func(at int, bytes msg, _ int64) {
		if at == field && out == nil {
			out = bytes
		}
	})
	return
}

func (m msg) list(field int) (out []msg) {
	m.each(func(at int, bytes msg, _ int64) {
		if at == field {
			out = append(out, bytes)
		}
	})
	return
}

func (m msg) value(field int) (out int64) {
	m.each(func(at int, _ msg, number int64) {
		if at == field {
			out = number
		}
	})
	return
}

type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*msg), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*msg) = append(msg{}, data...); return nil }
func (raw) Name() string                       { return "proto" }

type connection struct{ *grpc.ClientConn }

func dial(address string) connection {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	must(err)
	return connection{conn}
}

func unary(ctx context.Context, conn connection, method string, in msg) (out msg, err error) {
	err = conn.Invoke(ctx, method, &in, &out)
	return
}

type pipe struct{ grpc.ClientStream }

func (c connection) stream(ctx context.Context, method string) (pipe, error) {
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	return pipe{s}, err
}

func (p pipe) send(m msg) error { return p.SendMsg(&m) }

func (p pipe) receive() (m msg, err error) {
	err = p.RecvMsg(&m)
	return
}

// end closes our side and reads what is left.
func (p pipe) end() error {
	if err := p.CloseSend(); err != nil {
		return err
	}
	for {
		_, err := p.receive()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
