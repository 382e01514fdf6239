from jaxmarl_ppo.machine.text import LINES, listed, printable


def test_what_would_steer_a_terminal_is_shown():
    assert printable("\x1b[31mred\x07\u202e\n") == r"\x1b[31mred\x07\u202e\n"
    assert printable("a\nb\t\x1bc\ud800", keep=LINES) == "a\nb\t\\x1bc\\ud800"
    assert printable("Größe [bold]") == "Größe [bold]"
    assert listed(["a", "\x1b]0;x\x07"]) == r"a, \x1b]0;x\x07"
