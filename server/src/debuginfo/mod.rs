//! Debug information: files keyed by build id, and the names that they give to stored addresses.
//!
//! Profiles keep addresses for ever; names are looked up when they are read, so a file that comes
//! later names older data too.
//!
//! | module | job |
//! |---|---|
//! | `facts` | what a file says of itself: ids, quality, where its code is mapped |
//! | `objects`, `remote` | files in a local folder, or on an object store |
//! | `record` | one stored file, described by an object beside it |
//! | `index` | which file is the best for a build id; a better one replaces a worse |
//! | `upload` | files on their way in: bounded, resumable, checked before they count |
//! | `sources` | files that nobody sent: folders of this machine, debuginfod servers |
//! | `parse` | a file is read by a process of its own |
//! | `tables` | what is to be read, and what was in a bounded cache |
//! | `svma` | addresses of a process to addresses of a file |
//! | `names` | a part's symbols with names in the place of addresses |

mod facts;
mod index;
mod names;
mod objects;
mod parse;
mod record;
#[cfg(any(feature = "s3", test))]
mod remote;
mod sources;
mod store;
mod svma;
mod tables;
mod upload;

pub use facts::Quality;
pub use names::{has_reason, is_address, unresolved};
pub use objects::{Fetched, FolderFiles, ObjectFiles};
pub use record::{Record, Source};
#[cfg(feature = "s3")]
pub use remote::StoreFiles;
pub use sources::{Network, Sources};
pub use store::{Debuginfo, Found, Reason, Settings};
pub use upload::{Announced, Held, Started, UploadError, base_name, describe};
