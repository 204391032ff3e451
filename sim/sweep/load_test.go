package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/strict"
)

// Every built-in sweep is right and says what it is for.
func TestBuiltIn(t *testing.T) {
	for _, name := range Names() {
		s, err := Load(name)
		require.NoError(t, err, name)
		require.Equal(t, name, s.Name)
		require.NotEmpty(t, s.Description)
		require.NotNil(t, s.Objective)
	}
	s, err := Load("imbalance-threshold")
	require.NoError(t, err)
	require.Len(t, s.Cells, 3*77*48)
	require.Len(t, s.Seeds, 20)
}

func TestValues(t *testing.T) {
	for name, c := range map[string]struct{ axis, want string }{
		"list":               {`values = [3, 1, 2]`, "3 1 2"},
		"strings":            {`values = ["a", "b c"]`, "a b c"},
		"arrays":             {`values = [[["p"]], []]`, `[["p"]] []`},
		"whole steps":        {"from = 1\nto = 10\nstep = 4", "1 5 9"},
		"fractions":          {"from = 0.0\nto = 0.3\nstep = 0.05", "0 0.05 0.1 0.15 0.2 0.25 0.3"},
		"whole but one":      {"from = 0\nto = 1\nstep = 0.5", "0 0.5 1"},
		"points":             {"from = 0.0\nto = 1.0\npoints = 5", "0 0.25 0.5 0.75 1"},
		"log":                {"from = 1.0\nto = 100.0\npoints = 5\nscale = \"log\"", "1 3.162 10 31.62 100"},
		"log, whole":         {"from = 1\nto = 8\npoints = 4\nscale = \"log\"", "1 2 4 8"},
		"log, whole, merged": {"from = 1\nto = 3\npoints = 9\nscale = \"log\"", "1 2 3"},
		"one value":          {"from = 2\nto = 2\nstep = 1", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := resolveAxes(t, "name = \"x\"\nscenario = \"base.toml\"\n[[axes]]\nkey = \"description\"\n"+c.axis)
			var texts []string
			for _, v := range doc[0].Values {
				texts = append(texts, v.Text())
			}
			require.Equal(t, c.want, strings.Join(texts, " "))
		})
	}
}

// resolveAxes reads the axes alone.
func resolveAxes(t *testing.T, text string) []Axis {
	doc, err := strict.Parse("sweep.toml", []byte(text))
	require.NoError(t, err)
	var f file
	r := &resolver{src: source(text, smallBase), doc: doc, problems: doc.Decode(&f)}
	axes := r.axes(f.Axes)
	require.NoError(t, r.problems.Err())
	return axes
}

// Zipped axes advance together, the others are crossed, the last fastest.
func TestCells(t *testing.T) {
	s := resolve(t, `scenario = "base.toml"
[[axes]]
name = "replicas"
key = "cluster.replicas"
zip = "size"
values = [1, 2]
[[axes]]
key = "policy"
values = ["random", "least-request"]
[[axes]]
name = "rate"
key = "workload.arrivals.rate_per_second"
zip = "size"
values = [1.5, 3.0]
`)
	var labels []string
	for i, c := range s.Cells {
		labels = append(labels, s.Label(i))
		require.Equal(t, c.Policy, s.Value(i, 1).Text())
		require.Equal(t, -1, c.Baseline)
	}
	require.Equal(t, []string{
		"replicas=1 policy=random rate=1.5", "replicas=1 policy=least-request rate=1.5",
		"replicas=2 policy=random rate=3", "replicas=2 policy=least-request rate=3",
	}, labels)
	require.Equal(t, []bool{false, false, true}, []bool{s.Led(0), s.Led(1), s.Led(2)})
	require.Equal(t, 2, s.Cells[3].Scenario.Cluster.Replicas)
	require.Equal(t, 3.0, s.Cells[3].Scenario.Workload.Arrivals.Rate)
	require.Equal(t, uint64(7), s.Seeds[0])
	require.Len(t, s.Seeds, 20)
}

func TestBaselineAndGroups(t *testing.T) {
	s := resolve(t, smallSweep)
	require.Len(t, s.Cells, 12)
	for i, c := range s.Cells {
		require.Equal(t, i/6*6+1, c.Baseline, "the cell with the same hot fraction and 2 replicas")
	}
	require.Equal(t, [][]int{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}, s.Groups())
	require.Equal(t, []int{4, 8, 12}, s.Looks())
	require.True(t, s.Given(0))
	require.False(t, s.Given(1))
}

func TestCommandLine(t *testing.T) {
	src := source(smallSweep, smallBase)
	first := uint64(100)
	src.Sets, src.AxisTexts, src.Seeds, src.FirstSeed = []string{"workload.requests=12"}, []string{"replicas=4,2"}, 3, &first
	s, err := src.Resolve()
	require.NoError(t, err)
	require.Equal(t, []uint64{100, 101, 102}, s.Seeds)
	require.Equal(t, []int{3}, s.Looks())
	require.Len(t, s.Cells, 4)
	require.Equal(t, "hot=0 replicas=4", s.Label(0))
	require.Equal(t, 12, s.Cells[0].Scenario.Workload.Requests)

	for axis, want := range map[string]string{
		"replicas=9":   `axis "replicas" has no value "9"; allowed: 1, 2, 3, 4, 5, 6`,
		"replcas=2":    `did you mean "replicas"?`,
		"replicas":     `there must be values: replicas=VALUE,VALUE…; allowed: 1, 2, 3, 4, 5, 6`,
		"replicas=3,4": "must hold the baseline's, 2",
	} {
		src.AxisTexts = []string{axis}
		_, err := src.Resolve()
		require.ErrorContains(t, err, want)
	}
}

// The digest is of what the results depend on, not of how it is written.
func TestDigest(t *testing.T) {
	base := resolve(t, smallSweep).Digest()
	require.Equal(t, base, resolve(t, "# a comment\n"+strings.Replace(smallSweep, "from = 1\nto = 6\nstep = 1", "values = [1, 2, 3, 4, 5, 6]", 1)).Digest())
	for _, change := range [][2]string{
		{"at_least = 0.7", "at_least = 0.8"}, {"seeds = 12", "seeds = 13"}, {"first = 4", "first = 5"},
		{"replicas = 2\n[stop]", "replicas = 3\n[stop]"}, {"[0.0, 0.9]", "[0.0, 0.8]"}, {"minimise", "maximise"},
		{`given = ["hot"]`, ""},
	} {
		changed := strings.Replace(smallSweep, change[0], change[1], 1)
		require.NotEqual(t, smallSweep, changed)
		require.NotEqual(t, base, resolve(t, changed).Digest(), change)
	}
	src := source(smallSweep, strings.Replace(smallBase, "output_tokens = 16", "output_tokens = 17", 1))
	s, err := src.Resolve()
	require.NoError(t, err)
	require.NotEqual(t, base, s.Digest())
}

// Each problem is reported at its line, all at once.
func TestProblems(t *testing.T) {
	head := "scenario = \"base.toml\"\n[[axes]]\nname = \"x\"\nkey = \"cluster.replicas\"\n" // 4 lines
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown keys":       {head + "values = [1]\nvalue = [2]\n[objectve]\n", []string{`sweep.toml:6: unknown key "value"`, `sweep.toml:7: unknown key "objectve"; did you mean "objective"?`}},
		"no axes":            {"scenario = \"base.toml\"\n", []string{"must have an axis"}},
		"no key":             {"scenario = \"base.toml\"\n[[axes]]\nvalues = [1]\n", []string{"sweep.toml:2: the axis must have a key"}},
		"no values":          {head, []string{"sweep.toml:2: the axis must have values"}},
		"both":               {head + "values = [1]\nfrom = 1\n", []string{"both a list and a range"}},
		"half a range":       {head + "from = 1\nstep = 1\n", []string{"both from and to"}},
		"no step":            {head + "from = 1\nto = 2\n", []string{"either a step or a number of points"}},
		"step of 0":          {head + "from = 1\nto = 2\nstep = 0\n", []string{"sweep.toml:7: step must be above 0"}},
		"backwards":          {head + "from = 3\nto = 2\nstep = 1\n", []string{"to must be from = 3 or more"}},
		"one point":          {head + "from = 1\nto = 2\npoints = 1\n", []string{"sweep.toml:7: points must be from 2"}},
		"log from 0":         {head + "from = 0\nto = 2\npoints = 3\nscale = \"log\"\n", []string{"from must be above 0"}},
		"log with step":      {head + "from = 1\nto = 2\nstep = 3\nscale = \"log\"\n", []string{"has points, not a step"}},
		"scale":              {head + "from = 1\nto = 2\npoints = 3\nscale = \"lin\"\n", []string{`sweep.toml:8: scale "lin" is unknown`}},
		"huge":               {head + "from = 0.0\nto = 1e9\nstep = 1e-9\n", []string{"allowed: at most 100000"}},
		"text range":         {head + "from = \"1\"\nto = 2\nstep = 1\n", []string{"sweep.toml:5: axes.0.from must be a finite number"}},
		"infinite":           {head + "from = 1\nto = inf\nstep = 1\n", []string{"sweep.toml:6: axes.0.to must be a finite number"}},
		"control in a name":  {"name = \"a\\u202eb\"\n" + head + "values = [1]\n", []string{`sweep.toml:1: name must not have control characters, such as U+202E in "a\u202eb"`}},
		"control in a value": {strings.Replace(head, "cluster.replicas", "description", 1) + "values = [\"a\\u0000b\"]\n", []string{`sweep.toml:5: axes.0.values.0 must not have control characters, such as U+0000 in "a\x00b"`}},
		"deep key":           {strings.Replace(head, "cluster.replicas", strings.Repeat("a.", 40)+"a", 1) + "values = [1]\n", []string{"sweep.toml:4: the key has over 32 parts; allowed: at most 32"}},
		"blocks in all":      {head + "values = [1, 40]\n[set]\nengine.blocks = 16777216\n", []string{"sweep.toml:7: engine.blocks is 16777216, which for up to 40 replicas makes 671088640; allowed: at most 67108864 in all"}},
		"twice":              {head + "values = [1, 2, 1]\n", []string{"sweep.toml:5: the value 1 is listed twice"}},
		"two of a name":      {head + "values = [1]\n[[axes]]\nname = \"x\"\nkey = \"seed\"\nvalues = [1]\n", []string{`sweep.toml:7: the name "x" is given to two axes`}},
		"two of a key":       {head + "values = [1]\n[[axes]]\nname = \"m\"\nkey = \"cluster.replicas\"\nvalues = [1]\n", []string{"sweep.toml:8: the key"}},
		"reserved":           {strings.Replace(head, `"x"`, `"good_share"`, 1) + "values = [1]\n", []string{"sweep.toml:3: the axis name \"good_share\" is a column"}},
		"name with a space":  {strings.Replace(head, `"x"`, `"a b"`, 1) + "values = [1]\n", []string{"letters, digits"}},
		"zip":                {head + "zip = \"z\"\nvalues = [1, 2]\n[[axes]]\nname = \"m\"\nkey = \"seed\"\nzip = \"z\"\nvalues = [1]\n", []string{`the axis "m" has 1 values and "x", with which it is zipped, 2`}},
		"many cells":         {head + "from = 1\nto = 2000\nstep = 1\n[[axes]]\nname = \"y\"\nkey = \"seed\"\nfrom = 1\nto = 2000\nstep = 1\n", []string{"over 1000000 cells"}},
		"bad value":          {head + "values = [0, 1]\n", []string{"sweep.toml:4: cluster.replicas must be a whole number from 1 to 10000, not 0"}},
		"bad key":            {strings.Replace(head, "replicas", "replcas", 1) + "values = [1]\n", []string{`sweep.toml:4: unknown key "replcas"`, `did you mean "replicas"?`}},
		"bad policy":         {strings.Replace(head, "cluster.replicas", "policy", 1) + "values = [\"rand\"]\n", []string{"sweep.toml:2:", `"rand"`}},
		"bad set":            {head + "values = [1]\n[set]\nworkload.requests = -1\n", []string{"sweep.toml:7: workload.requests must be"}},
		"bad with the base":  {head + "values = [1]\n[set]\nworkload.prompt.families = 1\n", []string{"base.toml:14:", "in the cell x=1"}},
		"several policies":   {head + "values = [1]\n[set]\npolicies = [\"random\", \"prefix-cache\"]\n", []string{"2 policies"}},
		"engine":             {head + "values = [1]\n[set]\nengine.blocks = 3\n", []string{"blocks"}},
		"profile":            {head + "values = [1]\n[set]\nprofile = \"h100\"\n", []string{"sweep.toml:7:", "h100"}},
		"given":              {"given = [\"m\"]\n" + head + "values = [1]\n", []string{`sweep.toml:1: there is no axis "m"`}},
		"baseline axis":      {head + "values = [1]\n[baseline]\nm = 1\n", []string{`sweep.toml:7: there is no axis "m"`}},
		"baseline value":     {head + "values = [1]\n[baseline]\nx = 2\n", []string{`sweep.toml:7: axis "x" has no value 2; allowed: 1`}},
		"objective of two":   {head + "values = [1]\n[objective]\nminimise = \"x\"\nmaximise = \"x\"\n", []string{"one of minimise and maximise"}},
		"objective":          {head + "values = [1]\n[objective]\nminimise = \"ttft.p95\"\n", []string{`sweep.toml:7: there is no metric "ttft.p95"; did you mean "ttft_p95"?`}},
		"objective of texts": {strings.Replace(head, "cluster.replicas", "policy", 1) + "values = [\"random\"]\n[objective]\nminimise = \"x\"\n", []string{"values that are no numbers"}},
		"constraint":         {head + "values = [1]\n[[constraints]]\nmetric = \"good\"\n", []string{"sweep.toml:6: a constraint must have one of at_least and at_most"}},
		"stop":               {head + "values = [1]\n[stop]\nfirst = 1\nstep = 1\n", []string{"sweep.toml:6: stop must have"}},
		"stop for nothing":   {head + "values = [1]\n[stop]\nfirst = 2\nstep = 1\n", []string{"needs something to decide"}},
		"seeds":              {"seeds = 0\n" + head + "values = [1]\n", []string{"sweep.toml:1: seeds must be"}},
		"confidence":         {"confidence = 95\n" + head + "values = [1]\n", []string{"sweep.toml:1: confidence must be"}},
		"no TOML":            {"= 1\n", []string{"sweep.toml:1: not valid TOML"}},
		"all at once":        {"seeds = -1\nconfidence = 0.0\n" + head + "values = []\n", []string{"sweep.toml:1:", "sweep.toml:2:", "sweep.toml:4:"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := source(c.text, smallBase).Resolve()
			require.Error(t, err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// What a sweep's axis switches off need not be taken out of the base scenario, and
// a bad value is reported alone.
func TestSwitchesAndConsequences(t *testing.T) {
	const head = "scenario = \"base.toml\"\n[[axes]]\nname = \"x\"\n"
	_, err := source(head+"key = \"workload.retry.max_attempts\"\nvalues = [1, 3]\n[set]\nworkload.retry.back_off = \"1s\"\n", smallBase).Resolve()
	require.NoError(t, err)
	_, err = source(head+"key = \"autoscale.strategy\"\nvalues = [\"\", \"kpa\"]\n[set.autoscale]\nmetric = \"in_flight\"\nmax_replicas = 3\ntarget = 2\nmin_replicas = 2\n", smallBase).Resolve()
	require.NoError(t, err)
	_, err = source(head+"key = \"cluster.replicas\"\nvalues = [100000]\n[set]\nstart = { engine_cache = \"owners\", owners = [[\"pod-1\"]] }\n", smallBase).Resolve()
	require.EqualError(t, err, "sweep.toml:4: cluster.replicas must be a whole number from 1 to 10000, not 100000")
}

func TestFind(t *testing.T) {
	_, err := Find("imbalance-treshold")
	require.ErrorContains(t, err, `did you mean "imbalance-threshold"?`)
	_, err = Find("nowhere.toml")
	require.ErrorContains(t, err, "nowhere.toml")

	dir := t.TempDir()
	path := filepath.Join(dir, "s.toml")
	require.NoError(t, os.WriteFile(path, []byte(smallSweep), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, path+":2:", "the base is looked for beside the sweep")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base.toml"), []byte(smallBase), 0o600))
	s, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, "small-sweep", s.Name)

	require.NoError(t, os.WriteFile(path, []byte("seeds = 3\n"), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, "must name the scenario")
}

// A cell's place and its index are each other's inverse, and the shards of any
// number hold every cell once.
func TestGridProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Sweep{Objective: &Objective{}}
		for d := range rapid.IntRange(1, 4).Draw(t, "dims") {
			n := rapid.IntRange(1, 4).Draw(t, "n")
			s.Axes = append(s.Axes, Axis{Values: make([]Value, n)})
			s.dims, s.given = append(s.dims, []int{d}), append(s.given, rapid.Bool().Draw(t, "given"))
		}
		s.Cells = make([]Cell, s.count())
		none := make([]int, len(s.dims))
		for d := range none {
			none[d] = -1
		}
		for i := range s.Cells {
			require.Equal(t, i, s.index(s.place(i), none))
		}
		s.group()
		of := rapid.IntRange(1, 9).Draw(t, "of")
		seen := make([]int, len(s.Cells))
		for i := range of {
			for _, cell := range s.own(Shard{i, of}) {
				seen[cell]++
			}
		}
		for cell, n := range seen {
			require.Equal(t, 1, n, cell)
		}
	})
}

// Whatever a sweep says, it is refused with places or made, never a panic; and
// one that is made has a value on each axis for each cell.
func FuzzResolve(f *testing.F) {
	f.Add(smallSweep)
	f.Add("scenario = \"b\"\n[[axes]]\nkey = \"policy\"\nvalues = [\"random\"]\n[set]\na.b = {}\n")
	f.Add("[[axes]]\nkey=\"seed\"\nfrom=1\nto=9\npoints=3\nscale=\"log\"\nzip=\"z\"")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		s, err := source(text, smallBase).Resolve()
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for cell := range min(len(s.Cells), 100) {
			for a := range s.Axes {
				require.NotEmpty(t, s.Axes[a].Name)
				_ = s.Value(cell, a).Text()
			}
		}
	})
}
