//! Discovery, scrape loops and push of pprof endpoints.
