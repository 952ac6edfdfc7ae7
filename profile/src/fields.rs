//! Field numbers of pprof's `profile.proto`, and protobuf wire types.

pub const VARINT: u64 = 0;
pub const FIXED64: u64 = 1;
pub const BYTES: u64 = 2;
pub const FIXED32: u64 = 5;

pub const SAMPLE_TYPE: u64 = 1;
pub const SAMPLE: u64 = 2;
pub const MAPPING: u64 = 3;
pub const LOCATION: u64 = 4;
pub const FUNCTION: u64 = 5;
pub const STRING_TABLE: u64 = 6;
pub const DROP_FRAMES: u64 = 7;
pub const KEEP_FRAMES: u64 = 8;
pub const TIME_NANOS: u64 = 9;
pub const DURATION_NANOS: u64 = 10;
pub const PERIOD_TYPE: u64 = 11;
pub const PERIOD: u64 = 12;
pub const COMMENT: u64 = 13;
pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
pub const DOC_URL: u64 = 15;

pub const VALUE_TYPE_TYPE: u64 = 1;
pub const VALUE_TYPE_UNIT: u64 = 2;

pub const SAMPLE_LOCATION: u64 = 1;
pub const SAMPLE_VALUE: u64 = 2;
pub const SAMPLE_LABEL: u64 = 3;

pub const LABEL_KEY: u64 = 1;
pub const LABEL_STR: u64 = 2;
pub const LABEL_NUM: u64 = 3;
pub const LABEL_UNIT: u64 = 4;

pub const MAPPING_ID: u64 = 1;
pub const MAPPING_START: u64 = 2;
pub const MAPPING_LIMIT: u64 = 3;
pub const MAPPING_OFFSET: u64 = 4;
pub const MAPPING_FILE: u64 = 5;
pub const MAPPING_BUILD_ID: u64 = 6;
pub const MAPPING_HAS_FUNCTIONS: u64 = 7;
pub const MAPPING_HAS_FILENAMES: u64 = 8;
pub const MAPPING_HAS_LINE_NUMBERS: u64 = 9;
pub const MAPPING_HAS_INLINE_FRAMES: u64 = 10;

pub const LOCATION_ID: u64 = 1;
pub const LOCATION_MAPPING: u64 = 2;
pub const LOCATION_ADDRESS: u64 = 3;
pub const LOCATION_LINE: u64 = 4;
pub const LOCATION_IS_FOLDED: u64 = 5;

pub const LINE_FUNCTION: u64 = 1;
pub const LINE_LINE: u64 = 2;
pub const LINE_COLUMN: u64 = 3;

pub const FUNCTION_ID: u64 = 1;
pub const FUNCTION_NAME: u64 = 2;
pub const FUNCTION_SYSTEM_NAME: u64 = 3;
pub const FUNCTION_FILENAME: u64 = 4;
pub const FUNCTION_START_LINE: u64 = 5;
