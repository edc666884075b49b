package vqa

// contraction returns the word that the public contraction table of the VQA evaluation puts for a
// lower-cased one (with an odd entry or two, which are the table's own), or the word itself. Entries with
// capitals are left out: a lower-cased word can never match them.
func contraction(word string) string {
	switch word {
	case "aint":
		return "ain't"
	case "arent":
		return "aren't"
	case "cant":
		return "can't"
	case "couldve":
		return "could've"
	case "couldnt":
		return "couldn't"
	case "couldn'tve", "couldnt've":
		return "couldn't've"
	case "didnt":
		return "didn't"
	case "doesnt":
		return "doesn't"
	case "dont":
		return "don't"
	case "hadnt":
		return "hadn't"
	case "hadnt've", "hadn'tve":
		return "hadn't've"
	case "hasnt":
		return "hasn't"
	case "havent":
		return "haven't"
	case "hed":
		return "he'd"
	case "hed've", "he'dve":
		return "he'd've"
	case "hes":
		return "he's"
	case "howd":
		return "how'd"
	case "howll":
		return "how'll"
	case "hows":
		return "how's"
	case "isnt":
		return "isn't"
	case "itd":
		return "it'd"
	case "itd've", "it'dve":
		return "it'd've"
	case "itll":
		return "it'll"
	case "maam":
		return "ma'am"
	case "mightnt":
		return "mightn't"
	case "mightnt've", "mightn'tve":
		return "mightn't've"
	case "mightve":
		return "might've"
	case "mustnt":
		return "mustn't"
	case "mustve":
		return "must've"
	case "neednt":
		return "needn't"
	case "notve":
		return "not've"
	case "oclock":
		return "o'clock"
	case "oughtnt":
		return "oughtn't"
	case "ow's'at", "'ows'at", "'ow'sat":
		return "'ow's'at"
	case "shant":
		return "shan't"
	case "shed've", "she'dve":
		return "she'd've"
	case "shouldve":
		return "should've"
	case "shouldnt":
		return "shouldn't"
	case "shouldnt've", "shouldn'tve":
		return "shouldn't've"
	case "somebody'd":
		return "somebodyd"
	case "somebodyd've", "somebody'dve":
		return "somebody'd've"
	case "somebodyll":
		return "somebody'll"
	case "somebodys":
		return "somebody's"
	case "someoned":
		return "someone'd"
	case "someoned've", "someone'dve":
		return "someone'd've"
	case "someonell":
		return "someone'll"
	case "someones":
		return "someone's"
	case "somethingd":
		return "something'd"
	case "somethingd've", "something'dve":
		return "something'd've"
	case "somethingll":
		return "something'll"
	case "thats":
		return "that's"
	case "thered":
		return "there'd"
	case "thered've", "there'dve":
		return "there'd've"
	case "therere":
		return "there're"
	case "theres":
		return "there's"
	case "theyd":
		return "they'd"
	case "theyd've", "they'dve":
		return "they'd've"
	case "theyll":
		return "they'll"
	case "theyre":
		return "they're"
	case "theyve":
		return "they've"
	case "twas":
		return "'twas"
	case "wasnt":
		return "wasn't"
	case "wed've", "we'dve":
		return "we'd've"
	case "weve":
		return "we've"
	case "werent":
		return "weren't"
	case "whatll":
		return "what'll"
	case "whatre":
		return "what're"
	case "whats":
		return "what's"
	case "whatve":
		return "what've"
	case "whens":
		return "when's"
	case "whered":
		return "where'd"
	case "wheres":
		return "where's"
	case "whereve":
		return "where've"
	case "whod":
		return "who'd"
	case "whod've", "who'dve":
		return "who'd've"
	case "wholl":
		return "who'll"
	case "whos":
		return "who's"
	case "whove":
		return "who've"
	case "whyll":
		return "why'll"
	case "whyre":
		return "why're"
	case "whys":
		return "why's"
	case "wont":
		return "won't"
	case "wouldve":
		return "would've"
	case "wouldnt":
		return "wouldn't"
	case "wouldnt've", "wouldn'tve":
		return "wouldn't've"
	case "yall":
		return "y'all"
	case "yall'll", "y'allll":
		return "y'all'll"
	case "yall'd've", "y'alld've", "y'all'dve":
		return "y'all'd've"
	case "youd":
		return "you'd"
	case "youd've", "you'dve":
		return "you'd've"
	case "youll":
		return "you'll"
	case "youre":
		return "you're"
	case "youve":
		return "you've"
	}
	return word
}

// digit returns the digits for a number word up to ten (none is 0), or the word itself.
func digit(word string) string {
	switch word {
	case "none", "zero":
		return "0"
	case "one":
		return "1"
	case "two":
		return "2"
	case "three":
		return "3"
	case "four":
		return "4"
	case "five":
		return "5"
	case "six":
		return "6"
	case "seven":
		return "7"
	case "eight":
		return "8"
	case "nine":
		return "9"
	case "ten":
		return "10"
	}
	return word
}
