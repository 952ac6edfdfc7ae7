//! A token bucket.

/// Seconds' worth that may come at once.
const BURST_S: u64 = 2;

/// Tokens that flow in at a rate; a rate of 0 never refuses.
pub struct Bucket {
    per_second: u64,
    tokens: f64,
    last_ns: Option<i64>,
}

impl Bucket {
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second,
            tokens: per_second.saturating_mul(BURST_S) as f64,
            last_ns: None,
        }
    }

    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Lets in what flowed since the last call, then says whether `amount` is there, or in how many
    /// seconds it will be. An amount above the burst is let through when the bucket is full: it
    /// would otherwise never pass.
    pub fn has(&mut self, amount: u64, now_ns: i64) -> Result<(), u32> {
        if self.per_second == 0 {
            return Ok(());
        }
        let full = self.per_second.saturating_mul(BURST_S) as f64;
        // A clock that went back lets nothing in, and nothing out.
        let passed = now_ns.saturating_sub(self.last_ns.unwrap_or(now_ns)).max(0);
        self.last_ns = Some(now_ns);
        self.tokens = (self.tokens + passed as f64 / 1e9 * self.per_second as f64).min(full);
        let missing = (amount as f64).min(full) - self.tokens;
        if missing <= 0.0 {
            return Ok(());
        }
        Err((missing / self.per_second as f64).ceil().clamp(1.0, 3600.0) as u32)
    }

    pub fn take(&mut self, amount: u64) {
        if self.per_second > 0 {
            self.tokens -= amount as f64;
        }
    }
}
