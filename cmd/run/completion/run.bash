hydra_bash_completion() {
    local line="${COMP_LINE:0:$COMP_POINT}" exe="${COMP_WORDS[0]}"
    local word="${line##*[[:space:]]}" cur="${COMP_WORDS[$COMP_CWORD]}"
    case "$exe" in
        "~/"*) exe="$HOME/${exe#*/}" ;;
    esac
    command -v "$exe" >/dev/null 2>&1 || return 0
    case "$cur" in
        "=" | ":") cur="" ;;
    esac
    local keep="${word%%"$cur"}" reply
    COMPREPLY=()
    for reply in $(COMP_LINE="$line" COMP_POINT="${#line}" "$exe" -sc query=bash 2>/dev/null); do
        COMPREPLY+=("${reply#"$keep"}")
    done
    if [ "${#COMPREPLY[@]}" = 1 ]; then
        case "$word$reply" in
            *[=./]*) ;;
            *) compopt +o nospace 2>/dev/null ;; # a verb or a flag is complete
        esac
    fi
    return 0
}
complete -o nospace -o default -F hydra_bash_completion %[1]s
