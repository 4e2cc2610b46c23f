module github.com/rowcached/rowcached

go 1.26.0

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c // indirect
	github.com/go-mysql-org/go-mysql v1.15.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
)
