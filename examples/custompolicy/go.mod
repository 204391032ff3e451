module example.com/custompolicy

go 1.26.0

require fleetsim v0.0.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace fleetsim => ../..
