use super::*;

fn columns() -> Vec<(&'static str, Array)> {
    vec![
        (
            "name",
            Array::Dictionary {
                utf8: false,
                indices: vec![Some(1), None, Some(0)],
                values: vec![b"a".to_vec(), b"bc".to_vec()],
            },
        ),
        (
            "number",
            Array::Ints {
                bits: 32,
                signed: true,
                values: vec![Some(-1), Some(7), None],
            },
        ),
        ("truth", Array::Bools(vec![Some(true), Some(false), None])),
        (
            "children",
            Array::Lists {
                bits: 64,
                signed: true,
                lists: vec![vec![1, 2], vec![], vec![3]],
            },
        ),
        (
            "id",
            Array::Binary(vec![b"x".to_vec(), Vec::new(), b"yz".to_vec()]),
        ),
    ]
}

#[test]
fn what_is_written_reads_the_same() {
    let bytes = stream(&columns(), &[("key", "value")], 3);
    let mut stream = Stream::new(&bytes, 1 << 20).unwrap();
    assert_eq!(
        stream.schema().notes,
        [("key".to_owned(), "value".to_owned())]
    );
    let batch = stream.next().unwrap().unwrap();
    let column = |name: &str| batch.root.child(name).unwrap();
    let words = |name: &str| {
        (0..3)
            .map(|row| column(name).bytes(row).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(words("name"), [Some(&b"bc"[..]), None, Some(b"a")]);
    assert_eq!(words("id"), [Some(&b"x"[..]), Some(b""), Some(b"yz")]);
    let ints = |name: &str| {
        (0..3)
            .map(|row| column(name).int(row).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ints("number"), [Some(-1), Some(7), None]);
    assert_eq!(ints("truth"), [Some(1), Some(0), None]);
    let (rows, items) = column("children").base(2).unwrap().unwrap().list().unwrap();
    assert_eq!(
        (rows.clone(), items.int(rows.start).unwrap()),
        (2..3, Some(3))
    );
    assert!(column("children").base(1).unwrap().is_none());
    assert!(stream.next().unwrap().is_none());
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let bytes = stream(&columns(), &[], 3);
    let mut stream = Stream::new(&bytes, 40).unwrap();
    let fault = loop {
        match stream.next() {
            Ok(batch) => assert!(batch.is_some(), "it was taken"),
            Err(fault) => break fault,
        }
    };
    assert!(fault.to_string().contains("unpacks to more"), "{fault}");
}

#[test]
fn a_frame_of_lz4_unpacks_to_no_more_than_its_size() {
    // Version 1, independent blocks; one block of 5 literals and a match of 1,000 bytes, then the end.
    let block = [
        0x5f, b'a', b'b', b'c', b'd', b'e', 5, 0, 255, 255, 255, 216, 0x50, b'v', b'w', b'x', b'y',
        b'z',
    ];
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0];
    frame.extend((block.len() as u32).to_le_bytes());
    frame.extend(block);
    frame.extend([0; 4]);
    let whole = lz4::unpack(&frame, 1010).unwrap();
    assert_eq!(
        (whole.len(), &whole[..10], &whole[1005..]),
        (1010, &b"abcdeabcde"[..], &b"vwxyz"[..])
    );
    assert!(lz4::unpack(&frame, 1009).is_err());
    for end in 0..frame.len() {
        assert!(lz4::unpack(&frame[..end], 1010).is_err(), "{end}");
    }
}
