package config

import (
	"fmt"

	"github.com/rowcached/rowcached/mapping"
)

// unserved refuses the settings that are understood but that nothing carries out yet: a setting that is taken and
// not done would be worse than none.
func (c *Config) unserved() []error {
	var errs []error
	refuse := func(set bool, key, instead string) {
		if set {
			errs = append(errs, fmt.Errorf("%s is not served yet; %s", key, instead))
		}
	}
	refuse(c.Server.Unmapped == mapping.PolicyDisabled, "server.unmapped: disabled", "write cache_only")
	for _, t := range c.Tables {
		name := t.ContainerName()
		refuse(t.Load == mapping.LoadOnDemand, "table "+name+": load: on_demand", "write load: all")
		refuse(t.Policy != mapping.PolicySpec{}, "table "+name+": policy", "take it out; reads come from memory and writes are refused")
	}
	return errs
}
