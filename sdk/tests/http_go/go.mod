module pilotlight.example/conformance

go 1.22
