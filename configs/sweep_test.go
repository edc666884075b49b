package configs

import (
	"fmt"
	"strings"
	"testing"
)

func TestSweepJobs(t *testing.T) {
	req := request(shop, "db=mysql,pg", "port=range(2)", "hydra.job.name=n")
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		t.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := c.Expand(master)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := JobsYAML(jobs), "- - db=mysql\n  - port=0\n- - db=mysql\n  - port=1\n- - db=pg\n  - port=0\n- - db=pg\n  - "+
		"port=1\n"; got != want {
		t.Errorf("jobs\n%s\nwant\n%s", got, want)
	}
	job, err := c.Job(master, 3, jobs[3])
	if err != nil {
		t.Fatal(err)
	}
	h, err := job.Hydra()
	if err != nil {
		t.Fatal(err)
	}
	if h.SweepDir != "multirun/2026-01-31/12-05-09" || h.SweepSubdir != "3" {
		t.Errorf("job: %+v", h)
	}
	if text, err := job.YAML("hydra", true, "hydra.job"); err != nil || !strings.Contains(text, "\nname: 'n'\n") ||
		!strings.Contains(text, "\nid: '3'\nnum: 3\n") {
		t.Errorf("hydra.job: %s, %v", text, err)
	}
	if n, err := job.hydraValue("job.override_dirname"); err != nil || n.Text != "db=pg,port=1" {
		t.Errorf("override_dirname %v, %v", n, err)
	}
	if got := strings.Join(job.TaskOverrides(), " "); got != "db=pg port=1" {
		t.Errorf("overrides: %s", got)
	}
}

// ~key of a sweep is ~key=null in its jobs.
func TestSweepDeletes(t *testing.T) {
	req := request(shop, "~port", "tags=[1],[2]")
	jobs, err := ExpandSweep(req)
	if err != nil || len(jobs) != 2 || jobs[0][0] != "~port=null" {
		t.Errorf("%v, %v", jobs, err)
	}
}

func TestSpace(t *testing.T) {
	req := request(shop, "db=pg", "port=tag(log,interval(1,10))", "nested.x.y=int(interval(1,4))", "none=a,b")
	req.Multirun = true
	c, err := NewComposer(req)
	if err != nil {
		t.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		t.Fatal(err)
	}
	dims, fixed, err := c.Space(master)
	if err != nil {
		t.Fatal(err)
	}
	if len(fixed) != 1 || fixed[0] != "db=pg" || len(dims) != 3 {
		t.Fatalf("fixed %v, dims %+v", fixed, dims)
	}
	if d := dims[0]; !d.Interval() || !d.Log() || d.Low != 1 || d.High != 10 || d.Int {
		t.Errorf("port: %+v", d)
	}
	if d := dims[1]; !d.Int {
		t.Errorf("nested.x.y: %+v", d)
	}
	if d := dims[2]; d.Interval() || strings.Join(d.Choices, " ") != "a b" {
		t.Errorf("none: %+v", d)
	}
}

func TestSpaceKinds(t *testing.T) {
	space := func(files string, overrides ...string) ([]Dimension, []string, error) {
		req := request(files, overrides...)
		req.Multirun = true
		c, err := NewComposer(req)
		if err != nil {
			return nil, nil, err
		}
		master, err := c.Compose()
		if err != nil {
			return nil, nil, err
		}
		return c.Space(master)
	}
	for _, tc := range []struct{ override, want string }{
		{"port=interval(1,10)", "1..10 int false ordered false log false tags [] []"},
		{"port=int(interval(1,10.9))", "1..10 int true ordered false log false tags [] []"},
		{"port=float(interval(1,10))", "1..10 int false ordered false log false tags [] []"},
		{"port=tag(log,interval(0.001,0.1))", "0.001..0.1 int false ordered false log true tags [log] []"},
		{"port=tag(log,int(interval(1,1024)))", "1..1024 int true ordered false log true tags [log] []"},
		{"port=int(tag(log,interval(1,1024)))", "1..1024 int true ordered false log true tags [log] []"},
		{"port=choice(a,'b c',[1,2])", "0..0 int false ordered false log false tags [] [a b\\ c [1,2]]"},
		{"port=1,2", "0..0 int false ordered false log false tags [] [1 2]"},
		{"port=tag(x,choice(1))", "0..0 int false ordered false log false tags [x] [1]"},
		{"port=range(1,8,3)", "0..0 int false ordered true log false tags [] [1 4 7]"},
		{"port=range(5,0,-2)", "0..0 int false ordered true log false tags [] [5 3 1]"},
		{"port=range(0,1,0.25)", "0..0 int false ordered true log false tags [] [0.0 0.25 0.5 0.75]"},
		{"port=sort(range(3),reverse=true)", "0..0 int false ordered true log false tags [] [2 1 0]"},
		{"port=shuffle(range(1))", "0..0 int false ordered false log false tags [] [0]"},
		{"db=glob(*)", "0..0 int false ordered false log false tags [] [mysql pg]"},
		{"port=interval(3,3)", "error: port=interval(3,3): interval(3, 3): want start < end, both finite"},
		{"port=interval(0,inf)", "error: port=interval(0,inf): interval(0, +Inf): want start < end, both finite"},
		{"port=tag(log,interval(0,1))", "error: port=tag(log,interval(0,1)): tag(log, interval(0, 1)): a logarithmic interval must start " +
			"above 0"},
		{"port=range(3,3)", "error: port=range(3,3): a range has no values to choose from"},
		{"db=glob(z*)", "error: db=glob(z*): a glob has no values to choose from"},
	} {
		dims, _, err := space(shop, tc.override)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			d := dims[0]
			got = fmt.Sprintf("%v..%v int %v ordered %v log %v tags %v %v", d.Low, d.High, d.Int, d.Ordered, d.Log(), d.Tags, d.Choices)
		}
		if got != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.override, got, tc.want)
		}
	}
	dims, fixed, err := space("--- config\nlr: 1\nd: 2\nhydra: {sweeper: {params: {lr: 'tag(log, interval(0.01, 1))', d: 3}}}\n", "d=4")
	if err != nil || len(dims) != 1 || dims[0].Key != "lr" || !dims[0].Log() || len(fixed) != 1 || fixed[0] != "d=4" {
		t.Errorf("params: %+v %v %v", dims, fixed, err)
	}
	if _, _, err := space("--- config\nlr: 1\nhydra:\n  sweeper:\n    params: {lr: 'interval(2, 1)'}\n"); err == nil ||
		!strings.Contains(err.Error(), "config.yaml:4:18: ") {
		t.Errorf("a fault in params: %v", err)
	}
	if _, _, err := space("--- config\nlr: 1\nhydra:\n  sweeper:\n    search_space: {lr: {type: float}}\n"); err == nil ||
		!strings.Contains(err.Error(), "hydra.sweeper.params") || !strings.Contains(err.Error(), "config.yaml:4:") {
		t.Errorf("search_space: %v", err)
	}
}

// BenchmarkSweep composes 10,000 jobs of two groups and four values.
func BenchmarkSweep(b *testing.B) {
	for b.Loop() {
		req := request(shop, "db=mysql,pg", "port=range(5000)", "nested.x.y=2")
		jobs, err := ExpandSweep(req)
		if err != nil || len(jobs) != 10000 {
			b.Fatal(len(jobs), err)
		}
	}
}
