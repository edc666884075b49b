package doctor

// topKNotBest holds the candidates that a curriculum keeps against their groups: the advantages of a whole group have mean 0, so those
// of its best candidates have a mean of 0 or more. A clip may take from the best alone, and steps where it acts are passed over.
func (d *Doctor) topKNotBest(c Check, r row) {
	x, ok := r.get("mean_advantage", "advantage_clipped", "group_size")
	if d.lim.Policy == nil || !ok || !d.lim.Policy.Centred || x[1] > 0 || d.lim.topK(r.epoch, x[2]) >= x[2] || x[0] >= -c.Limit {
		return
	}
	d.say(c, d.key("curriculum"), x[0], -c.Limit, "the %g candidates of a group that count in epoch %d have a mean advantage of %.3g, and "+
		"the best ones of a group are never below its mean of 0: %s takes the worst, and the run imitates what it should avoid",
		d.lim.topK(r.epoch, x[2]), r.epoch, x[0], d.key("curriculum"))
}
