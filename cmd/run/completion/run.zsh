hydra_zsh_completion() {
    local exe=${(Q)words[1]/#\~\//$HOME/} line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local -a replies
    replies=(${(f)"$(COMP_LINE=$line COMP_POINT=${#line} $exe -sc query=zsh 2>/dev/null)"})
    compadd -S '' -a replies
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
compdef hydra_zsh_completion %[1]s
