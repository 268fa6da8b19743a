use std::path::Path;

use super::{FILES_PER_UNIT, in_parallel, parse, units};

#[test]
fn every_file_is_in_exactly_one_unit() {
    let files: Vec<String> =
        (0..60).map(|i| format!("db/file_{i}.cc")).chain((0..3).map(|i| format!("util/{i}.cc"))).collect();
    let list = format!("{}\ndb/c.cc\nutil/crc32c_ppc_asm.S\nutil/build_version.cc\n\n", files.join("\n"));
    let units = units(&list);
    let mut found: Vec<&str> = units.iter().flatten().copied().collect();
    let mut expected: Vec<&str> = files.iter().map(String::as_str).collect();
    expected.extend(["db/c.cc", "util/crc32c_ppc_asm.S", "../build_version.cc"]);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(units.iter().all(|files| files.len() <= FILES_PER_UNIT));
    assert!(units.contains(&vec!["db/c.cc"]) && units.contains(&vec!["util/crc32c_ppc_asm.S"]));
    assert!(
        units.iter().all(|files| { files.iter().all(|file| file.split('/').next() == files[0].split('/').next()) })
    );
}

#[test]
fn the_locked_crate_is_read_from_the_metadata() {
    let json = r#"{"packages": [{"name": "rocksdb", "version": "0.25.0", "manifest_path": "/r/rocksdb/Cargo.toml"},
        {"name": "librocksdb-sys", "version": "0.19.0+11.8.1", "manifest_path": "/r/librocksdb-sys/Cargo.toml"}]}"#;
    let sys = parse(json).expect("the crate is there");
    assert_eq!((sys.version.as_str(), sys.folder.as_path()), ("0.19.0+11.8.1", Path::new("/r/librocksdb-sys")));
    let message = parse(r#"{"packages": []}"#).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("librocksdb-sys is not among the dependencies"), "{message}");
}

#[test]
fn results_of_parallel_work_keep_the_order_of_the_items() {
    let items: Vec<usize> = (0..100).collect();
    assert_eq!(in_parallel(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
    assert!(in_parallel(&[], |i: &usize| *i).is_empty());
}
