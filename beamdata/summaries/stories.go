package summaries

import (
	"fmt"
	"math/rand/v2"
	"strings"
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

func weather(r *rand.Rand) story {
	event, place, day := pick(r, []string{"storm", "flood", "fire", "quake"}), pick(r, places()), pick(r, days())
	homes, hurt, road := 10*(1+r.IntN(60)), r.IntN(10), fmt.Sprintf("a%d", 1+r.IntN(40))
	mayor, wind, phone := pick(r, people()), 20+r.IntN(70), 100+r.IntN(900)
	school := pick(r, []string{"open", "shut"})
	return story{
		kind: "weather",
		facts: []fact{
			{"event", event, "there was a " + event + "."},
			{"place", place, "it was in " + place + "."},
			{"day", day, "it was on " + day + "."},
			{"homes dark", fmt.Sprint(homes), fmt.Sprintf("%d homes are dark.", homes)},
			{"hurt", fmt.Sprint(hurt), fmt.Sprintf("%d people are hurt.", hurt)},
			{"closed road", road, "the " + road + " is closed."},
			{"mayor", mayor, "the mayor is " + mayor + "."},
			{"wind", fmt.Sprint(wind), fmt.Sprintf("the wind was at %d.", wind)},
			{"schools", school, "the schools are " + school + "."},
			{"help line", fmt.Sprint(phone), fmt.Sprintf("the help line is %d.", phone)},
		},
		headlines: [2]string{"alert in " + place + ".", "alert on " + road + "."},
		openings: [3]string{
			"on " + day + " a " + event + " struck " + place + ".",
			place + " was struck by a " + event + " on " + day + ".",
			"a " + event + " struck " + place + " on " + day + ".",
		},
		details: []detail{
			{fmt.Sprintf("it left %d homes without power.", homes), ifLarge(homes, 300)},
			{fmt.Sprintf("%d people were hurt.", hurt), ifLarge(hurt, 3)},
			{"drivers must avoid the " + road + ".", sometimes},
		},
	}
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
	return story{
		kind: "match",
		facts: []fact{
			{"home", home, home + " played at home."},
			{"away", away, away + " came to visit."},
			{"score", fmt.Sprintf("%d - %d", x, y), fmt.Sprintf("it ended %d - %d.", x, y)},
			{"day", day, "it was on " + day + "."},
			{"best player", scorer, scorer + " was the best."},
			{"red card", off, off + " saw red."},
			{"crowd", fmt.Sprint(crowd), fmt.Sprintf("%d people came.", crowd)},
			{"referee", referee, "the referee was " + referee + "."},
			{"start", fmt.Sprintf("%d pm", kickoff), fmt.Sprintf("it began at %d pm.", kickoff)},
		},
		headlines: [2]string{fmt.Sprintf("win for %s.", winner), fmt.Sprintf("win by %d.", high-low)},
		openings: [3]string{
			fmt.Sprintf("on %s %s beat %s %d - %d.", day, winner, loser, high, low),
			fmt.Sprintf("%s lost to %s %d - %d on %s.", loser, winner, low, high, day),
			fmt.Sprintf("the game saw %s beat %s %d - %d on %s.", winner, loser, high, low, day),
		},
		details: []detail{
			{scorer + " shone for the fans.", often},
			{off + " was sent off.", sometimes},
			{fmt.Sprintf("a crowd of %d watched.", crowd), ifLarge(crowd, 5000)},
		},
	}
}

func deal(r *rand.Rand) story {
	buyer, target := two(r, firms())
	price, jobs, day := 5*(1+r.IntN(100)), 10*r.IntN(80), pick(r, days())
	boss, adviser, office := pick(r, people()), pick(r, people()), pick(r, places())
	founded, share := 1900+r.IntN(110), 1+r.IntN(99)
	return story{
		kind: "deal",
		facts: []fact{
			{"buyer", buyer, "the buyer is " + buyer + "."},
			{"target", target, "the target is " + target + "."},
			{"price", fmt.Sprintf("%d million", price), fmt.Sprintf("the price is %d million.", price)},
			{"day", day, "it was on " + day + "."},
			{"new boss", boss, "the new boss is " + boss + "."},
			{"jobs lost", fmt.Sprint(jobs), fmt.Sprintf("%d jobs are lost.", jobs)},
			{"adviser", adviser, "the adviser is " + adviser + "."},
			{"office", office, "the office is in " + office + "."},
			{"founded", fmt.Sprint(founded), fmt.Sprintf("it was founded in %d.", founded)},
			{"share", fmt.Sprint(share), fmt.Sprintf("a share costs %d.", share)},
		},
		headlines: [2]string{"new owner for " + target + ".", "new boss at " + target + "."},
		openings: [3]string{
			fmt.Sprintf("on %s %s bought %s for %d million.", day, buyer, target, price),
			fmt.Sprintf("%s was bought by %s for %d million on %s.", target, buyer, price, day),
			fmt.Sprintf("the firm %s bought %s for %d million on %s.", buyer, target, price, day),
		},
		details: []detail{
			{boss + " will lead the firm.", sometimes},
			{fmt.Sprintf("about %d jobs will go.", jobs), ifLarge(jobs, 400)},
			{"the staff were told at the office in " + office + ".", seldom},
		},
	}
}

func rescue(r *rand.Rand) story {
	who := pick(r, []string{"hikers", "sailors", "climbers", "divers", "boys", "girls", "miners", "tourists"})
	count, place, day, hours := 2+r.IntN(8), pick(r, places()), pick(r, days()), 2+r.IntN(60)
	by, chief := pick(r, []string{"a helicopter", "a dog", "a fisher", "a farmer", "a lifeboat", "a pilot"}), pick(r, people())
	sky, cost, phone := pick(r, []string{"rain", "snow", "fog", "sun"}), 100*(1+r.IntN(50)), 100+r.IntN(900)
	return story{
		kind: "rescue",
		facts: []fact{
			{"lost", fmt.Sprintf("%d %s", count, who), fmt.Sprintf("%d %s were lost.", count, who)},
			{"place", place, "it was in " + place + "."},
			{"day", day, "it was on " + day + "."},
			{"found by", by, by + " found them."},
			{"hours", fmt.Sprint(hours), fmt.Sprintf("it took %d hours.", hours)},
			{"chief", chief, "the chief is " + chief + "."},
			{"sky", sky, "there was " + sky + "."},
			{"cost", fmt.Sprint(cost), fmt.Sprintf("it cost %d.", cost)},
			{"help line", fmt.Sprint(phone), fmt.Sprintf("the help line is %d.", phone)},
		},
		headlines: [2]string{"safe after " + fmt.Sprint(hours) + " hours.", "safe with " + by + "."},
		openings: [3]string{
			fmt.Sprintf("on %s %d %s were rescued near %s.", day, count, who, place),
			fmt.Sprintf("teams near %s rescued %d %s on %s.", place, count, who, day),
			fmt.Sprintf("%d %s were rescued near %s on %s.", count, who, place, day),
		},
		details: []detail{
			{by + " had found them.", often},
			{fmt.Sprintf("the search took %d hours.", hours), ifLarge(hours, 30)},
			{fmt.Sprintf("it was the work of %s.", chief), sometimes},
		},
	}
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
