//! A store for each tenant: the same settings, another folder, its part of the memory.

use crate::config::{Config, Error};

use super::{DEFAULT_TENANT, is_tenant_name};

/// Least memory of a tenant's open segment and of its cache.
const LEAST_BYTES: usize = 8 << 20;

/// Name and settings of each store; the default tenant's is where it was before there were others.
///
/// # Errors
/// [`Error::Tenant`].
pub fn of(config: &Config) -> Result<Vec<(String, Config)>, Error> {
    let parts = config.tenants.len() + 1;
    let part = |bytes: usize| (bytes / parts).max(LEAST_BYTES.min(bytes));
    let own = Config {
        head_bytes: part(config.head_bytes),
        cache_bytes: part(config.cache_bytes),
        ..config.clone()
    };
    let mut all = vec![(DEFAULT_TENANT.to_owned(), own.clone())];
    for tenant in &config.tenants {
        if !is_tenant_name(tenant) || all.iter().any(|(known, _)| known == tenant) {
            return Err(Error::Tenant(tenant.clone()));
        }
        let mut config = Config {
            data_dir: config.data_dir.join("tenants").join(tenant),
            disk: None,
            extra_metrics: None,
            targets: None,
            ..own.clone()
        };
        #[cfg(feature = "s3")]
        if let Some(s3) = &mut config.s3 {
            let prefix = format!("{}/tenants/{tenant}", s3.prefix.trim_end_matches('/'));
            s3.prefix = prefix.trim_start_matches('/').to_owned();
        }
        config.extra_router = None;
        all.push((tenant.clone(), config));
    }
    Ok(all)
}
