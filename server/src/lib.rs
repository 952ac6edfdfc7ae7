//! Ingest, storage, query and API of profiles.
