module pilotlight.example/gocompare

go 1.24.0

require github.com/google/pprof v0.0.0-20251007162407-5df77e3f7d1d
