//! Parca's API by a gRPC client of a few lines; the messages are written down anew here.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use prost::Message;

use super::*;

#[derive(Clone, PartialEq, Message)]
struct Should {
    #[prost(string, tag = "1")]
    build_id: String,
    #[prost(string, tag = "2")]
    hash: String,
    #[prost(bool, tag = "3")]
    force: bool,
    #[prost(int32, tag = "4")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ShouldAnswer {
    #[prost(bool, tag = "1")]
    yes: bool,
    #[prost(string, tag = "2")]
    reason: String,
}

#[derive(Clone, PartialEq, Message)]
struct Initiate {
    #[prost(string, tag = "1")]
    build_id: String,
    #[prost(int64, tag = "2")]
    size: i64,
    #[prost(string, tag = "3")]
    hash: String,
}

#[derive(Clone, PartialEq, Message)]
struct InitiateAnswer {
    #[prost(message, optional, tag = "1")]
    instructions: Option<Instructions>,
}

#[derive(Clone, PartialEq, Message)]
struct Instructions {
    #[prost(string, tag = "1")]
    build_id: String,
    #[prost(string, tag = "2")]
    upload_id: String,
    #[prost(int32, tag = "3")]
    strategy: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Upload {
    #[prost(string, tag = "1")]
    build_id: String,
    #[prost(string, tag = "2")]
    upload_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(message, optional, tag = "1")]
    info: Option<Upload>,
    #[prost(bytes = "vec", optional, tag = "2")]
    chunk: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct UploadAnswer {
    #[prost(string, tag = "1")]
    build_id: String,
    #[prost(uint64, tag = "2")]
    size: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WriteRaw {
    #[prost(message, repeated, tag = "2")]
    series: Vec<Series>,
    #[prost(bool, tag = "3")]
    normalized: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, optional, tag = "1")]
    labels: Option<Labels>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Labels {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(bytes = "vec", tag = "1")]
    profile: Vec<u8>,
}

/// One call with any number of messages; the first message of the answer, or its status.
pub async fn call<O: Message + Default>(
    at: SocketAddr,
    method: &str,
    messages: &[impl Message],
) -> Result<O, (u32, String)> {
    let socket = tokio::net::TcpStream::connect(at).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = axum::http::Request::post(format!("http://{at}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut sending) = client.send_request(request, false).unwrap();
    for message in messages {
        let body = message.encode_to_vec();
        let mut frame = BytesMut::from(&[0][..]);
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&body);
        send(&mut sending, frame.freeze()).await;
    }
    sending.send_data(Bytes::new(), true).unwrap();
    let answer = answer.await.unwrap();
    let head = answer.headers().clone();
    let mut body = answer.into_body();
    let mut bytes = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head);
    connection.abort();
    let text = |name: &str| {
        trailers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    };
    match text("grpc-status").parse().unwrap() {
        0 => Ok(O::decode(&bytes[5..]).unwrap()),
        code => Err((code, text("grpc-message").to_owned())),
    }
}

/// Waits for the room that the other side gives.
async fn send(sending: &mut h2::SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        sending.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|context| sending.poll_capacity(context)).await;
        let room = room.unwrap().unwrap().min(bytes.len());
        sending.send_data(bytes.split_to(room), false).unwrap();
    }
}

const FILES: &str = "parca.debuginfo.v1alpha1.DebuginfoService";

async fn should(at: SocketAddr, build_id: &str, hash: &str) -> (bool, String) {
    let asked = Should {
        build_id: build_id.to_owned(),
        hash: hash.to_owned(),
        ..Should::default()
    };
    let method = format!("{FILES}/ShouldInitiateUpload");
    let answer: ShouldAnswer = call(at, &method, &[asked]).await.unwrap();
    (answer.yes, answer.reason)
}

#[test]
fn parcas_agent_writes_profiles_and_sends_debuginfo() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), SOURCE);
    let server = Local::start(config(&folder.path().join("data")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(parca(server.address, &built));
    let named = ["", "main", "leaf", "square"];
    wait_for("names", || names(server.address) == named);
    server.stop();
}

async fn parca(at: SocketAddr, built: &Built) {
    let label = |name: &str, value: &str| Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let labels = vec![label("__name__", "process_cpu"), label("service_name", "s")];
    let write = WriteRaw {
        series: vec![Series {
            labels: Some(Labels { labels }),
            samples: vec![Sample {
                profile: addresses(built, &built.build_id),
            }],
        }],
        normalized: false,
    };
    let method = "parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
    call::<()>(at, method, std::slice::from_ref(&write))
        .await
        .unwrap();
    let mut nameless = write.clone();
    nameless.series[0].labels = None;
    let (code, text) = call::<()>(at, method, &[nameless]).await.unwrap_err();
    assert!(code == 3 && text.contains("__name__"), "{code} {text}");

    let id = built.build_id.as_str();
    assert_eq!(should(at, id, "h1").await, (true, "first".to_owned()));
    let bytes = std::fs::read(&built.debug).unwrap();
    let initiate = Initiate {
        build_id: id.to_owned(),
        size: bytes.len() as i64,
        hash: "h1".to_owned(),
    };
    let method = format!("{FILES}/InitiateUpload");
    let begun: InitiateAnswer = call(at, &method, std::slice::from_ref(&initiate))
        .await
        .unwrap();
    let instructions = begun.instructions.unwrap();
    assert_eq!(
        (instructions.build_id.as_str(), instructions.strategy),
        (id, 1)
    );
    let upload = Upload {
        build_id: id.to_owned(),
        upload_id: instructions.upload_id,
    };
    let mut pieces = vec![Piece {
        info: Some(upload.clone()),
        chunk: None,
    }];
    pieces.extend(bytes.chunks(4096).map(|chunk| Piece {
        info: None,
        chunk: Some(chunk.to_vec()),
    }));
    let method = format!("{FILES}/Upload");
    // Twice: an agent that was cut off begins anew.
    for _ in 0..2 {
        let sent: UploadAnswer = call(at, &method, &pieces).await.unwrap();
        assert_eq!(
            (sent.build_id.as_str(), sent.size),
            (id, bytes.len() as u64)
        );
    }
    let method = format!("{FILES}/MarkUploadFinished");
    call::<()>(at, &method, std::slice::from_ref(&upload))
        .await
        .unwrap();
    let (code, _) = call::<()>(at, &method, &[upload]).await.unwrap_err();
    assert_eq!(code, 5, "NOT_FOUND");
    assert_eq!(
        should(at, id, "h2").await,
        (false, "have_as_good".to_owned())
    );
    let method = format!("{FILES}/InitiateUpload");
    let again = call::<InitiateAnswer>(at, &method, &[initiate]).await;
    assert_eq!(again.unwrap_err().0, 6, "ALREADY_EXISTS");
}
