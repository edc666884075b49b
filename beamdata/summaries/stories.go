package summaries

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"

	"fulcrum/internal/list"
)

// stories returns the makers of all kinds of reports.
func stories() []func(*rand.Rand) story {
	return []func(*rand.Rand) story{weather, match, deal, rescue}
}

// often, sometimes and seldom are the shares of the long summaries that give a detail.
const (
	often     = 0.9
	sometimes = 0.45
	seldom    = 0.05
)

// ifLarge is often for a large number and seldom for a small one.
func ifLarge(n, large int) float64 {
	if n >= large {
		return often
	}
	return seldom
}

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// two returns two different entries.
func two(r *rand.Rand, from []string) (a, b string) {
	i, j := r.IntN(len(from)), r.IntN(len(from)-1)
	if j >= i {
		j++
	}
	return from[i], from[j]
}

//go:embed stories.txt
var storyTexts string

// told fills the texts of a kind of reports with values, each behind its "{name}".
func told(kind string, shares [3]float64, values ...any) story {
	fill := strings.NewReplacer(list.Map(values, func(v any) string { return fmt.Sprint(v) })...)
	_, text, _ := strings.Cut(storyTexts, "\n"+kind+"\n")
	text, _, _ = strings.Cut(text, "\n\n")
	s := story{kind: kind}
	var said []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if f := strings.Split(fill.Replace(line), " | "); len(f) == 3 {
			s.facts = append(s.facts, fact{f[0], f[1], f[2]})
		} else {
			said = append(said, f[0])
		}
	}
	copy(s.headlines[:], said)
	copy(s.openings[:], said[2:])
	for i, share := range shares {
		s.details = append(s.details, detail{said[5+i], share})
	}
	return s
}

func weather(r *rand.Rand) story {
	event, place, day := pick(r, []string{"storm", "flood", "fire", "quake"}), pick(r, places()), pick(r, days())
	homes, hurt, road := 10*(1+r.IntN(60)), r.IntN(10), fmt.Sprintf("a%d", 1+r.IntN(40))
	mayor, wind, phone := pick(r, people()), 20+r.IntN(70), 100+r.IntN(900)
	school := pick(r, []string{"open", "shut"})
	return told("weather", [3]float64{ifLarge(homes, 300), ifLarge(hurt, 3), sometimes},
		"{event}", event, "{place}", place, "{day}", day, "{homes}", homes, "{hurt}", hurt, "{road}", road,
		"{mayor}", mayor, "{wind}", wind, "{school}", school, "{phone}", phone)
}

func match(r *rand.Rand) story {
	home, away := two(r, teams())
	x, y := r.IntN(6), r.IntN(5)
	if y >= x {
		y++ // no draws
	}
	winner, loser := home, away
	if y > x {
		winner, loser = away, home
	}
	high, low := max(x, y), min(x, y)
	day, scorer, off := pick(r, days()), pick(r, people()), pick(r, people())
	crowd, referee, kickoff := 100*(1+r.IntN(90)), pick(r, people()), 1+r.IntN(11)
	return told("match", [3]float64{often, sometimes, ifLarge(crowd, 5000)},
		"{home}", home, "{away}", away, "{x}", x, "{y}", y, "{day}", day, "{scorer}", scorer, "{off}", off,
		"{crowd}", crowd, "{referee}", referee, "{kickoff}", kickoff, "{winner}", winner, "{margin}", high-low,
		"{loser}", loser, "{high}", high, "{low}", low)
}

func deal(r *rand.Rand) story {
	buyer, target := two(r, firms())
	price, jobs, day := 5*(1+r.IntN(100)), 10*r.IntN(80), pick(r, days())
	boss, adviser, office := pick(r, people()), pick(r, people()), pick(r, places())
	founded, share := 1900+r.IntN(110), 1+r.IntN(99)
	return told("deal", [3]float64{sometimes, ifLarge(jobs, 400), seldom},
		"{buyer}", buyer, "{target}", target, "{price}", price, "{day}", day, "{boss}", boss, "{jobs}", jobs,
		"{adviser}", adviser, "{office}", office, "{founded}", founded, "{share}", share)
}

func rescue(r *rand.Rand) story {
	who := pick(r, []string{"hikers", "sailors", "climbers", "divers", "boys", "girls", "miners", "tourists"})
	count, place, day, hours := 2+r.IntN(8), pick(r, places()), pick(r, days()), 2+r.IntN(60)
	by, chief := pick(r, []string{"a helicopter", "a dog", "a fisher", "a farmer", "a lifeboat", "a pilot"}), pick(r, people())
	sky, cost, phone := pick(r, []string{"rain", "snow", "fog", "sun"}), 100*(1+r.IntN(50)), 100+r.IntN(900)
	return told("rescue", [3]float64{often, ifLarge(hours, 30), sometimes},
		"{count}", count, "{who}", who, "{place}", place, "{day}", day, "{by}", by, "{hours}", hours, "{chief}", chief,
		"{sky}", sky, "{cost}", cost, "{phone}", phone)
}

func days() []string {
	return strings.Fields("monday tuesday wednesday thursday friday saturday sunday")
}

func places() []string {
	return strings.Fields("dover leeds york bath derby oslo turin ghent lyon bergen porto malmo exeter truro ripon wells boston salem tulsa " +
		"fargo nome perth cairns hobart")
}

func people() []string {
	return strings.Fields("smith jones brown evans hughes lewis wood hall green baker adams carter silva costa meyer weber rossi bianchi " +
		"novak kowal tanaka sato khan singh")
}

func teams() []string {
	return strings.Fields("rovers united city rangers albion wanderers athletic county harriers celtic dynamo spartak falcons tigers sharks " +
		"wolves")
}

func firms() []string {
	return strings.Fields("acme globex initech umbra vertex zenith orion lumen pelican granite harbor summit nimbus quartz beacon cobalt")
}
