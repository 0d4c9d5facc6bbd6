# Arguments: a folder, and the server with its options. Tells the server's pid and waits for the end of the test, which
# is when nobody holds the other side of standard input any more, however it came. Then the server and the folder go.
folder=$1
shift
trap '' HUP INT TERM
"$@" > "$folder/log" 2>&1 < /dev/null &
echo $!
read -r _
kill -KILL $!
wait
rm -rf "$folder"
