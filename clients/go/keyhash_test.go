package thunderhead

import "testing"

func TestKeyHashIsTheHashThatEveryClientComputes(t *testing.T) {
	// The vectors of the Rust client.
	for key, want := range map[string]uint64{
		"": 0x2d06800538d394c2, "a": 0xe6c632b61e964e1f, "abc": 0x78af5f94892f3950,
	} {
		if got := keyHash(key); got != want {
			t.Errorf("keyHash(%q) = %#x, want %#x", key, got, want)
		}
	}
	// Values of the reference implementation in C for keys of all size classes. Byte i of a key of
	// n bytes is 31 * i + n.
	for _, it := range []struct {
		bytes int
		want  uint64
	}{
		{0, 0x2d06800538d394c2},
		{1, 0xe12ef9d2eb86ceeb},
		{2, 0x1526811c52b5cfc0},
		{3, 0xb2b06c45ef888ef4},
		{4, 0x8b806c96ec81f796},
		{5, 0x988e18b6a13077ac},
		{6, 0x172646b9944a9cef},
		{7, 0x7561869c23da3c1b},
		{8, 0x65d8b6bd6573b7b0},
		{9, 0xb5f2eed243ec7bcb},
		{10, 0x9d3cda07ca4e3e3a},
		{11, 0xcb028e2fadfe03a2},
		{12, 0x273553a4206327d5},
		{13, 0x6587dd7b367cc972},
		{14, 0x01b3f8c2fde07135},
		{15, 0xb95c332dcb0d05c0},
		{16, 0x49d5450d8a85f113},
		{17, 0x8d676ab55fd41af7},
		{18, 0xcdd209b526f1a383},
		{19, 0xa44dc1c0f2a8ad72},
		{31, 0xefbbfb8f121dd109},
		{32, 0x6dbdae88dae0d09c},
		{33, 0x40625e2b1ae2531c},
		{63, 0xf423ef39cdd95e40},
		{64, 0x126d7b47cbb1d0f0},
		{65, 0x9b8972aa39b25570},
		{95, 0x5189b6b8809acd39},
		{96, 0x261ddafef0930988},
		{97, 0xa815a9e59a0c66bd},
		{127, 0x318645ea8aa7d900},
		{128, 0x50abcbca6bb1912f},
		{129, 0x94874e014aad8e2d},
		{130, 0x3b189f63ab35be69},
		{143, 0xa2f8c10a6811b498},
		{144, 0x2eefb7668453bd72},
		{145, 0xe25e3704dac4d6d2},
		{159, 0xe35942c6d86d9d14},
		{160, 0x272d5067172bd24f},
		{200, 0xfbad87b9eea41798},
		{239, 0x77ca9cc309627828},
		{240, 0x7e145804a9f93009},
		{241, 0x31c2d8792b29abb5},
		{255, 0xaddaf720be74a888},
		{256, 0xcdd3578b9df45e59},
		{257, 0xcb547b74036a7280},
		{511, 0x5063d53f65a97903},
		{512, 0x0b1844eecde6b4d7},
		{513, 0xef89ae510f114bc7},
		{1023, 0x807c64f5ca5a907b},
		{1024, 0x4986ea1c273817c6},
		{1025, 0x8bccc0d0cd347025},
		{1087, 0xc7f97816561ed55a},
		{1088, 0x4a71b8b3d27162ab},
		{1089, 0x6debe093717a996f},
		{2047, 0xcc211427179f4d27},
		{2048, 0xae9fe389b636a6c4},
		{2049, 0xcbc615c43d02f122},
		{3072, 0x17193f153b5cc6a9},
		{5000, 0xaf1785bf5fefc92c},
		{65536, 0x0b481e6d91382b8e},
	} {
		key := make([]byte, it.bytes)
		for i := range key {
			key[i] = byte(31*i + it.bytes)
		}
		if got := keyHash(string(key)); got != it.want {
			t.Errorf("the hash of %d bytes is %#x, want %#x", it.bytes, got, it.want)
		}
	}
}
