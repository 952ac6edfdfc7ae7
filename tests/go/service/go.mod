module pilotlight.example/goservice

go 1.22
