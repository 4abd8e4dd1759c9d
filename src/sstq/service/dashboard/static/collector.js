// Requests to the collector, with the token if there is one. It is kept in this tab only.

const TOKEN = "sstq-token";
// The page is at / or at /NAME, maybe behind a proxy's prefix: all addresses are relative to its folder.
export const base = new URL(".", document.baseURI);
export const address = (path) => new URL(path, base);
export const nameInAddress = () => decodeURIComponent(location.pathname.slice(base.pathname.length));

export const token = () => sessionStorage.getItem(TOKEN);
export const useToken = (given) => sessionStorage.setItem(TOKEN, given);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function ask(path) {
  const answer = await fetch(address(path), {
    headers: token() ? { Authorization: `Bearer ${token()}` } : {},
    cache: "no-cache",
    credentials: "omit",
  });
  if (!answer.ok) {
    const { detail } = await answer.json().catch(() => ({ detail: `The collector answered ${answer.status}.` }));
    throw new Refused(answer.status, detail);
  }
  return answer;
}

export const read = async (path) => (await ask(path)).json();
