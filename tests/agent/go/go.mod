module hot

go 1.21
