package tasks

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
)

// What task and policy may name are the tables' names: the keys' enum can neither promise more nor hide one.
func TestTablesAreTheEnums(t *testing.T) {
	for _, tc := range []struct {
		field string
		table []string
	}{{"Task", Tasks().Names()}, {"Policy", workload.Policies().Names()}} {
		field, ok := reflect.TypeFor[job.Config]().FieldByName(tc.field)
		if !ok {
			t.Fatalf("no field %s", tc.field)
		}
		enum := slices.Sorted(slices.Values(strings.Split(field.Tag.Get("enum"), ",")))
		if !slices.Equal(enum, tc.table) {
			t.Errorf("%s: the enum is %v, the table %v", tc.field, enum, tc.table)
		}
	}
}
