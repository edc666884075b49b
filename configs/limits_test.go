package configs

import (
	"strings"
	"testing"
	"time"
)

// Whatever is read comes from people and files that may be wrong: it must end soon, with a message.
func TestLimits(t *testing.T) {
	env := &environment{}
	resolve := func(yaml string) error {
		n, err := ParseYAML("f", []byte(yaml))
		if err != nil {
			return err
		}
		r := newResolver(n, env)
		_, err = r.expand(r.root)
		return err
	}
	override := func(text string) error { _, err := ParseOverride(text); return err }
	chain := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	for _, tc := range []struct {
		name, want string
		run        func() error
	}{
		{"100,000 open lists in an override", "nested deeper", func() error { return override("a=" + strings.Repeat("[", 100_000)) }},
		{"100,000 open mappings in an override", "nested deeper", func() error { return override("a=" + strings.Repeat("{a:", 100_000)) }},
		{"100,000 nested calls", "nested deeper", func() error { return override("a=" + strings.Repeat("int(", 100_000)) }},
		{"100,000 nested interpolations", "nested deeper", func() error { _, err := newString(strings.Repeat("${", 100_000)); return err }},
		{"100,000 nested lists in an argument", "nested deeper",
			func() error { _, err := newString("${oc.create:" + strings.Repeat("[", 100_000)); return err }},
		{"100,000 open lists in YAML", "", func() error { return resolve("a: " + strings.Repeat("[", 100_000)) }},
		{"9,000 nested lists in YAML", "nested deeper", func() error {
			return resolve("a: " + strings.Repeat("[", 9_000) +
				strings.Repeat("]", 9_000))
		}},
		{"a sweep in a list of 100,000", "", func() error { return override("a=[" + strings.Repeat("1,", 100_000) + "choice(1,2)]") }},
		{"a mapping of 20,000 keys in an override", "ok", func() error {
			return override("a={" + strings.TrimSuffix(chain(20_000, func(i int) string { return "k" + itoa(i) + ":1," }), ",") + "}")
		}},
		{"aliases that expand", "expand", func() error {
			return resolve("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + chain(9, func(i int) string {
				return "a" + itoa(i+1) + ": &a" + itoa(i+1) + " [" + strings.TrimSuffix(strings.Repeat("*a"+itoa(i)+",", 10), ",") + "]\n"
			}))
		}},
		{"merge keys that expand", "", func() error {
			return resolve("a0: &a0 {x: [1,2,3,4,5,6,7,8,9,0]}\n" + chain(30, func(i int) string {
				return "a" + itoa(i+1) + ": &a" + itoa(i+1) + " {l: *a" + itoa(i) + ", r: *a" + itoa(i) + "}\n"
			}))
		}},
		{"text that doubles 60 times", "text longer", func() error {
			return resolve(chain(60, func(i int) string { return "a" + itoa(i) + ": '${a" + itoa(i+1) + "}${a" + itoa(i+1) + "}'\n" }) + "a60: x\n")
		}},
		{"lists that double 60 times", "expand to more", func() error {
			return resolve(chain(60, func(i int) string { return "a" + itoa(i) + ": ['${a" + itoa(i+1) + "}', '${a" + itoa(i+1) + "}']\n" }) +
				"a60: x\n")
		}},
		{"text of lists that double 60 times", "", func() error {
			return resolve("t: 'x${a0}'\n" + chain(60, func(i int) string {
				return "a" + itoa(i) + ": ['${a" + itoa(i+1) + "}', '${a" +
					itoa(i+1) + "}']\n"
			}) + "a60: x\n")
		}},
		{"text over text of lists, 60 times", "", func() error {
			return resolve(chain(60, func(i int) string { return "a" + itoa(i) + ": '${a" + itoa(i+1) + "}${a" + itoa(i+1) + "}'\n" }) +
				"a60: '${l}'\nl: ['${m}']\nm: 1\n")
		}},
		{"resolver arguments that double 60 times", "", func() error {
			return resolve(chain(60, func(i int) string {
				return "a" + itoa(i) + ": '${oc.create:[${a" + itoa(i+1) + "},${a" + itoa(i+1) + "}]}'\n"
			}) + "a60: x\n")
		}},
		{"decoding that doubles 60 times", "", func() error {
			return resolve(chain(60, func(i int) string {
				return "a" + itoa(i) + `: '${oc.decode:"\${a` + itoa(i+1) + `}\${a` + itoa(i+1) + "}\"}'\n"
			}) + "a60: x\n")
		}},
		{"a chain of 2,000 links", "", func() error {
			return resolve(chain(2_000, func(i int) string { return "a" + itoa(i) + ": ${a" + itoa(i+1) + "}\n" }) + "a2000: x\n")
		}},
		{"a chain of 2,000 links the other way", "ok", func() error {
			return resolve("a2000: x\n" + strings.Join(reversed(2_000, func(i int) string { return "a" + itoa(i) + ": ${a" + itoa(i+1) + "}" }),
				"\n"))
		}},
		{"a key that decodes itself", "Recursive interpolation detected", func() error { return resolve("a: '${oc.decode:\"\\${a}\"}'\n") }},
		{"a list that holds itself", "", func() error { return resolve("a: {b: '${a}'}\n") }},
		{"lists that hold each other", "", func() error { return resolve("a: {b: '${c}'}\nc: {d: '${a}'}\n") }},
		{"a select that selects itself", "", func() error { return resolve("a: '${oc.select:a}'\n") }},
		{"a range of 10^15", "more than", func() error {
			o, err := ParseOverride("a=range(1000000000000000)")
			if err == nil {
				_, err = o.value.values(nil)
			}
			return err
		}},
		{"a range of tiny steps", "more than", func() error {
			o, err := ParseOverride("a=range(0,1,1e-300)")
			if err == nil {
				_, err = o.value.values(nil)
			}
			return err
		}},
		{"sorting a range of 10^300", "more than", func() error {
			o, err := ParseOverride("a=sort(range(0,1e300,1e-300),reverse=true)")
			if err == nil {
				_, err = o.value.values(nil)
			}
			return err
		}},
		{"a pattern of many stars", "ok", func() error { fnmatch(strings.Repeat("*a", 2000)+"b", strings.Repeat("a", 4000)); return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			err := tc.run()
			if d := time.Since(start); d > time.Minute { // on a machine that does much else
				t.Errorf("took %v", d)
			}
			if tc.want == "ok" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			if len(err.Error()) > 400_000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

func reversed(n int, line func(int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = line(n - 1 - i)
	}
	return out
}
