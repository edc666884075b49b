function hydra_fish_completion
    set -lx COMP_LINE (commandline -cp)
    set -l exe (string replace -r '^~/' "$HOME/" -- (commandline -opc)[1])
    $exe -sc query=fish 2>/dev/null
end
complete -c %[1]s -f -a '(hydra_fish_completion)'
