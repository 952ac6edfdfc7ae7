//! The two Parquet schemas of a block, and how each column is encoded.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type, ZstdLevel};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type as SchemaType, TypePtr};

/// Columns of the samples file: service, profile, series and time stand before these.
pub const STACK: usize = 4;
pub const LABELS: usize = 5;
pub const FIRST_VALUE: usize = 6;

/// Rows of a row group; one holds rows of one service and one type set.
pub const GROUP_ROWS: usize = 1 << 19;
/// Rows of a page: what a read of one series and a short time decodes too much.
pub const PAGE_ROWS: usize = 1 << 16;
/// Rows that a reader takes at a time, so that they stay in the processor's cache.
pub const PIECE_ROWS: usize = 1 << 13;

/// Element types of the lists of the symbols file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// INT32, unsigned.
    U32,
    /// INT64.
    I64,
    /// BYTE_ARRAY.
    Bytes,
    /// FIXED_LEN_BYTE_ARRAY(16).
    Id,
}

/// Lists of the symbols file, after its column `service`. Chunk n + 1 of a row group is list n.
pub const LISTS: &[(&str, Element)] = &[
    ("profile_series", Element::U32),
    ("profile_type_set", Element::U32),
    ("profile_time", Element::I64),
    ("profile_duration", Element::I64),
    ("profile_period", Element::I64),
    ("profile_id", Element::Id),
    ("profile_count", Element::U32),
    ("profile_samples", Element::I64),
    ("profile_rows", Element::U32),
    ("profile_total", Element::I64),
    ("stack_node", Element::U32),
    ("node_parent", Element::U32),
    ("node_location", Element::U32),
    ("location_mapping", Element::U32),
    ("location_folded", Element::U32),
    ("location_address", Element::I64),
    ("location_line_end", Element::U32),
    ("line_function", Element::U32),
    ("line_number", Element::I64),
    ("line_column", Element::I64),
    ("function_name", Element::U32),
    ("function_system_name", Element::U32),
    ("function_file", Element::U32),
    ("function_start_line", Element::I64),
    ("mapping_start", Element::I64),
    ("mapping_limit", Element::I64),
    ("mapping_offset", Element::I64),
    ("mapping_file", Element::U32),
    ("mapping_build_id", Element::U32),
    ("mapping_flags", Element::U32),
    ("label_set_end", Element::U32),
    ("label_key", Element::U32),
    ("label_text", Element::U32),
    ("label_number", Element::I64),
    ("label_unit", Element::U32),
    ("string", Element::Bytes),
];
/// Lists of [`LISTS`] that describe profiles; the others are symbols.
pub const PROFILE_LISTS: usize = 10;
/// Chunk of the list `profile_id`.
pub const PROFILE_ID: usize = 6;

/// How the columns that cost most are written. The defaults were measured (ADR 20).
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Encoding of stack ids; `RLE_DICTIONARY` = dictionary.
    pub stack: Encoding,
    /// Encoding of values; `RLE_DICTIONARY` = dictionary.
    pub value: Encoding,
    /// zstd level of the samples.
    pub level: i32,
    /// Rows of a page.
    pub page_rows: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            stack: Encoding::DELTA_BINARY_PACKED,
            value: Encoding::RLE_DICTIONARY,
            level: 3,
            page_rows: PAGE_ROWS,
        }
    }
}

fn primitive(name: &str, kind: Type, logical: Option<LogicalType>) -> Result<TypePtr> {
    let mut builder = SchemaType::primitive_type_builder(name, kind)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical);
    if kind == Type::FIXED_LEN_BYTE_ARRAY {
        builder = builder.with_length(16);
    }
    Ok(Arc::new(builder.build()?))
}

fn unsigned() -> Option<LogicalType> {
    Some(LogicalType::integer(32, false))
}

/// Schema of the samples file with `width` value columns.
pub fn samples(width: usize) -> Result<TypePtr> {
    let text = Some(LogicalType::String);
    let mut fields = vec![
        primitive("service", Type::BYTE_ARRAY, text.clone())?,
        primitive("profile", Type::BYTE_ARRAY, text.clone())?,
        primitive("series", Type::BYTE_ARRAY, text)?,
        primitive(
            "time",
            Type::INT64,
            Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
        )?,
        primitive("stack", Type::INT32, unsigned())?,
        primitive("labels", Type::INT32, unsigned())?,
    ];
    for index in 0..width {
        fields.push(primitive(&format!("value_{index}"), Type::INT64, None)?);
    }
    root("samples", fields)
}

/// Schema of the symbols file: one row a service, each table column a list.
pub fn symbols() -> Result<TypePtr> {
    let text = Some(LogicalType::String);
    let mut fields = vec![primitive("service", Type::BYTE_ARRAY, text)?];
    for (name, element) in LISTS {
        let item = match element {
            Element::U32 => primitive("element", Type::INT32, unsigned())?,
            Element::I64 => primitive("element", Type::INT64, None)?,
            Element::Bytes => primitive("element", Type::BYTE_ARRAY, None)?,
            Element::Id => primitive("element", Type::FIXED_LEN_BYTE_ARRAY, None)?,
        };
        let repeated = SchemaType::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![item])
            .build()?;
        let list = SchemaType::group_type_builder(name)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(repeated)])
            .build()?;
        fields.push(Arc::new(list));
    }
    root("symbols", fields)
}

fn root(name: &str, fields: Vec<TypePtr>) -> Result<TypePtr> {
    Ok(Arc::new(
        SchemaType::group_type_builder(name)
            .with_fields(fields)
            .build()?,
    ))
}

/// Leaf columns of a schema.
pub fn leaves(root: TypePtr) -> SchemaDescriptor {
    SchemaDescriptor::new(root)
}

fn zstd(level: i32) -> Result<Compression> {
    Ok(Compression::ZSTD(ZstdLevel::try_new(level)?))
}

/// Writer properties of the samples file.
pub fn samples_properties(layout: &Layout, width: usize) -> Result<WriterPropertiesPtr> {
    let mut builder = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(zstd(layout.level)?)
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(layout.page_rows)
        .set_data_page_size_limit(1 << 20)
        .set_write_batch_size(layout.page_rows)
        .set_statistics_enabled(EnabledStatistics::Page);
    let values = (0..width).map(|index| (format!("value_{index}"), layout.value));
    for (name, encoding) in std::iter::once(("stack".to_owned(), layout.stack)).chain(values) {
        let path = ColumnPath::from(name);
        if encoding != Encoding::RLE_DICTIONARY {
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, encoding);
        }
    }
    Ok(Arc::new(builder.build()))
}

/// Writer properties of the symbols file.
pub fn symbols_properties(root: &TypePtr) -> Result<WriterPropertiesPtr> {
    let mut builder = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(zstd(3)?)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 20)
        .set_statistics_enabled(EnabledStatistics::None);
    for column in leaves(root.clone()).columns() {
        let encoding = match column.physical_type() {
            Type::INT32 | Type::INT64 => Encoding::DELTA_BINARY_PACKED,
            Type::BYTE_ARRAY => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            _ => Encoding::PLAIN,
        };
        builder = builder.set_column_encoding(column.path().clone(), encoding);
    }
    Ok(Arc::new(builder.build()))
}

const CREATED_BY: &str = concat!("pilotlight ", env!("CARGO_PKG_VERSION"));
