package vqa

import (
	"cmp"
	"strings"
	"sync"
)

// contraction returns the word that the public contraction table of the VQA evaluation puts for a
// lower-cased one (with an odd entry or two, which are the table's own), or the word itself. Entries with
// capitals are left out: a lower-cased word can never match them.
func contraction(word string) string { return cmp.Or(contractions()[word], word) }

var contractions = sync.OnceValue(func() map[string]string {
	return pairs(`aint ain't, arent aren't, cant can't, couldve could've, couldnt couldn't, couldn'tve couldn't've, couldnt've couldn't've,
didnt didn't, doesnt doesn't, dont don't, hadnt hadn't, hadnt've hadn't've, hadn'tve hadn't've, hasnt hasn't, havent haven't,
hed he'd, hed've he'd've, he'dve he'd've, hes he's, howd how'd, howll how'll, hows how's, isnt isn't, itd it'd, itd've it'd've,
it'dve it'd've, itll it'll, maam ma'am, mightnt mightn't, mightnt've mightn't've, mightn'tve mightn't've, mightve might've,
mustnt mustn't, mustve must've, neednt needn't, notve not've, oclock o'clock, oughtnt oughtn't, ow's'at 'ow's'at,
'ows'at 'ow's'at, 'ow'sat 'ow's'at, shant shan't, shed've she'd've, she'dve she'd've, shouldve should've, shouldnt shouldn't,
shouldnt've shouldn't've, shouldn'tve shouldn't've, somebody'd somebodyd, somebodyd've somebody'd've,
somebody'dve somebody'd've, somebodyll somebody'll, somebodys somebody's, someoned someone'd, someoned've someone'd've,
someone'dve someone'd've, someonell someone'll, someones someone's, somethingd something'd, somethingd've something'd've,
something'dve something'd've, somethingll something'll, thats that's, thered there'd, thered've there'd've,
there'dve there'd've, therere there're, theres there's, theyd they'd, theyd've they'd've, they'dve they'd've, theyll they'll,
theyre they're, theyve they've, twas 'twas, wasnt wasn't, wed've we'd've, we'dve we'd've, weve we've, werent weren't,
whatll what'll, whatre what're, whats what's, whatve what've, whens when's, whered where'd, wheres where's, whereve where've,
whod who'd, whod've who'd've, who'dve who'd've, wholl who'll, whos who's, whove who've, whyll why'll, whyre why're, whys why's,
wont won't, wouldve would've, wouldnt wouldn't, wouldnt've wouldn't've, wouldn'tve wouldn't've, yall y'all, yall'll y'all'll,
y'allll y'all'll, yall'd've y'all'd've, y'alld've y'all'd've, y'all'dve y'all'd've, youd you'd, youd've you'd've,
you'dve you'd've, youll you'll, youre you're, youve you've`)
})

// digit returns the digits for a number word up to ten (none is 0), or the word itself.
func digit(word string) string { return cmp.Or(digits()[word], word) }

var digits = sync.OnceValue(func() map[string]string {
	return pairs("none 0, zero 0, one 1, two 2, three 3, four 4, five 5, six 6, seven 7, eight 8, nine 9, ten 10")
})

// pairs reads a table: "from to, from to".
func pairs(text string) map[string]string {
	table := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		words := strings.Fields(pair)
		table[words[0]] = words[1]
	}
	return table
}
