module pilotlight.example/busy

go 1.21
