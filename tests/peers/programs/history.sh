# A small history, collected, checked and cloned.
set -e
git init -q repository
cd repository
git config user.name n
git config user.email e
git config gc.auto 0
for i in $(seq 20); do
  echo "$i" > "file$((i % 5))"
  git add .
  git commit -qm "$i" --date="@$i"
done
git gc -q
git fsck
git log --format=%T | sha256sum
git clone -q . ../clone
git -C ../clone rev-list --count HEAD
