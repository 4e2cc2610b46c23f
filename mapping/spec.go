package mapping

// Spec is one table of the configuration, as the operator wrote it. Empty fields take their defaults:
// the container is named after the table, the key is "NAME:{pk}", the value is the JSON of every visible
// column, flags are 0, items never expire, the whole table is mirrored.
type Spec struct {
	Table  string     `yaml:"table"`  // schema.table
	Name   string     `yaml:"name"`   // container name
	Key    string     `yaml:"key"`    // key template
	Value  ValueSpec  `yaml:"value"`  //
	Flags  string     `yaml:"flags"`  // a column or a number
	CAS    string     `yaml:"cas"`    // a column
	Expire string     `yaml:"expire"` // a column of unix seconds, or a duration such as 15m
	Load   string     `yaml:"load"`   // all | on_demand
	Policy PolicySpec `yaml:"policy"`
}

// ValueSpec says what an item's bytes are.
type ValueSpec struct {
	Format    string   `yaml:"format"`    // json | text
	Columns   []string `yaml:"columns"`   // default: every column that SELECT * gives
	Separator string   `yaml:"separator"` // of text values; default "|"
}

// PolicySpec says where each kind of command goes, in the words of MySQL's memcached plugin:
// innodb_only, cache_only, caching, disabled.
type PolicySpec struct {
	Get    string `yaml:"get"`
	Set    string `yaml:"set"`
	Delete string `yaml:"delete"`
	Flush  string `yaml:"flush"`
}

// The values of ValueSpec.Format and Spec.Load.
const (
	FormatJSON = "json"
	FormatText = "text"

	LoadAll      = "all"
	LoadOnDemand = "on_demand"
)

// The values of PolicySpec's fields.
const (
	PolicyInnoDBOnly = "innodb_only"
	PolicyCacheOnly  = "cache_only"
	PolicyCaching    = "caching"
	PolicyDisabled   = "disabled"
)
