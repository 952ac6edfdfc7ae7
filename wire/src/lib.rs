//! What every network edge of pilotlight shares: body limits, HTTP client, retry.
